"""Remote calls over ZeroMQ: servers, batching servers, clients, keys, addresses."""

from embodied.rpc.address import AUTO as AUTO
from embodied.rpc.address import resolve as resolve
from embodied.rpc.batching import BatchServer as BatchServer
from embodied.rpc.client import Client as Client
from embodied.rpc.errors import AddressError as AddressError
from embodied.rpc.errors import ClientClosed as ClientClosed
from embodied.rpc.errors import DecodeError as DecodeError
from embodied.rpc.errors import EncodeError as EncodeError
from embodied.rpc.errors import HandshakeError as HandshakeError
from embodied.rpc.errors import KeyFileError as KeyFileError
from embodied.rpc.errors import RemoteError as RemoteError
from embodied.rpc.errors import RpcError as RpcError
from embodied.rpc.futures import Future as Future
from embodied.rpc.keys import ClientKeys as ClientKeys
from embodied.rpc.keys import Keys as Keys
from embodied.rpc.keys import ServerKeys as ServerKeys
from embodied.rpc.keys import load_client as load_client
from embodied.rpc.keys import load_server as load_server
from embodied.rpc.keys import make_keys as make_keys
from embodied.rpc.server import Server as Server
