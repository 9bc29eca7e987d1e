"""A channel alone: when it looks for messages, and what news it announces."""

import pytest
import zmq

from embodied.rpc import channel, protocol


@pytest.fixture
def pair():
    context = zmq.Context()
    ends = [channel.Channel(context, kind) for kind in (zmq.ROUTER, zmq.DEALER)]
    ends[0].socket.bind("inproc://pair")
    ends[1].socket.connect("inproc://pair")
    yield ends
    for end in ends:
        end.close()
    context.term()


def drain(line):
    """Read until `readable` says that there is nothing; the messages."""
    messages = []
    while line.readable():
        message = line.receive()
        if message is not None:
            messages.append(message)
    return messages


def send(line, numbers):
    for number in numbers:
        assert line.send(protocol.pack(protocol.REQUEST, number))


def test_news_that_were_taken_already_are_no_message(pair):
    server, _ = pair
    drain(server)
    server._announced = True  # As if another thread had read the message meanwhile.
    assert server.readable()
    assert server.receive() is None
    assert server.malformed == 0
    assert not server.readable()


def test_each_wait_ends_with_the_next_message(pair):
    server, client = pair
    drain(server)
    for number in (1, 2, 3):
        send(client, [number])
        assert server.wait(10)
        assert [message.header.id for message in drain(server)] == [number]


def test_one_wait_is_enough_for_several_messages(pair):
    server, client = pair
    drain(server)
    send(client, [1, 2, 3])
    assert server.wait(10)
    assert [message.header.id for message in drain(server)] == [1, 2, 3]
    assert not server.wait(0)
