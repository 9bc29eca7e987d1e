"""Run loops in one process; `parallel` has those of several processes."""

from embodied.run import parallel as parallel
from embodied.run.eval_only import eval_only as eval_only
from embodied.run.train import train as train
from embodied.run.train_eval import train_eval as train_eval
from embodied.run.train_offline import train_offline as train_offline
