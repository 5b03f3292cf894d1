"""A client on nats-core that connects, publishes, subscribes and sends requests, and prints the outcome as a JSON
object.

The argument is the address of the server. nats-core is installed in its own directory, since nats-py is the
same Python package `nats`.
"""

import asyncio
import json
import sys

from nats.client import connect
from nats.client.errors import NoRespondersError


async def main(server):
    client = await connect(server, timeout=30)
    subscription = await client.subscribe("core.news")
    await client.flush()
    await client.publish("core.news", b"hello", headers={"from": "core"})
    message = await asyncio.wait_for(subscription.next(), 30)
    result = {"data": message.data.decode(), "from": message.headers.get("from")}

    responder = await client.subscribe("core.work")
    await client.flush()

    async def respond():
        request = await responder.next()
        await client.publish(request.reply, b"re:" + request.data)

    responding = asyncio.create_task(respond())
    response = await client.request("core.work", b"ping", timeout=30)
    await responding
    result["response"] = response.data.decode()
    try:
        await client.request("core.nobody", b"ping", timeout=30)
    except NoRespondersError:
        result["nobody"] = "no responders"
    # Not closed: nats-core says that it needs Python 3.13, and closing is the one step here that does.
    print(json.dumps(result))


asyncio.run(main(sys.argv[1]))
