"""A NATS client on nats-py that does what the tests say: a JSON object a line in, a JSON object a line out."""

import asyncio
import json
import sys

import nats
from nats.errors import NoRespondersError, TimeoutError


def report(**fields):
    print(json.dumps(fields), flush=True)


async def main(server):
    async def on_reconnect():
        report(event="reconnected")

    async def on_error(error):
        report(event="error", text=str(error))

    client = await nats.connect(
        server,
        reconnected_cb=on_reconnect,
        error_cb=on_error,
        max_reconnect_attempts=-1,
        reconnect_time_wait=0.1,
        pending_size=64 * 1024 * 1024,
    )
    subs = {}

    async def do(command):
        what = command["do"]
        if what == "sub":
            number = command["id"]

            async def on_message(message):
                report(msg=number, subject=message.subject, data=message.data.decode(), headers=message.headers or {})

            subs[number] = await client.subscribe(
                command["subject"], queue=command.get("queue", ""), cb=on_message, pending_msgs_limit=-1, pending_bytes_limit=-1
            )
            await client.flush()
        elif what == "unsub":
            await subs.pop(command["id"]).unsubscribe(limit=command.get("max", 0))
            await client.flush()
        elif what == "answer":

            async def on_request(message):
                await message.respond(b"re:" + message.data)

            await client.subscribe(command["subject"], queue=command.get("queue", ""), cb=on_request)
            await client.flush()
        elif what == "pub":
            for number in range(command.get("count", 1)):
                data = command["data"] + (str(number) if "count" in command else "")
                await client.publish(command["subject"], data.encode(), headers=command.get("headers"))
            await client.flush(30)
        elif what == "req":
            try:
                answer = await client.request(command["subject"], command["data"].encode(), timeout=command["timeout"])
                report(answer=answer.data.decode())
            except NoRespondersError:
                report(answer=None, why="no responders")
            except TimeoutError:
                report(answer=None, why="timeout")
        elif what == "drain":
            await client.drain()
        report(done=what)

    report(event="connected")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await do(json.loads(line))
    await client.close()


asyncio.run(main(sys.argv[1]))
