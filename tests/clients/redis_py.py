"""A Redis client on redis-py that does what the tests say: a JSON object a line in, a JSON object a line out."""

import asyncio
import json
import sys

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff
from redis.exceptions import ConnectionError, ResponseError, TimeoutError


def report(**fields):
    print(json.dumps(fields), flush=True)


async def main(server):
    protocol = int(sys.argv[2]) if 2 < len(sys.argv) else 3
    retry = Retry(ConstantBackoff(0.1), 300)
    client = redis.Redis.from_url(
        server, protocol=protocol, decode_responses=True, retry=retry, retry_on_error=[ConnectionError, TimeoutError]
    )
    await client.ping()
    pubsub = client.pubsub()
    numbers = {}

    async def read():
        while True:
            if not numbers:
                await asyncio.sleep(0.01)
                continue
            message = await pubsub.get_message(timeout=1.0)
            if message is None:
                continue
            if message["type"] in ("message", "pmessage"):
                number = numbers[message["pattern"] or message["channel"]]
                report(msg=number, subject=message["channel"], data=message["data"])
            elif message["type"] in ("subscribe", "psubscribe"):
                report(event="subscribed", to=message["channel"])

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda task: None if task.cancelled() else report(event="error", text=str(task.exception())))

    async def do(command):
        what = command["do"]
        if what == "sub":
            numbers[command["subject"]] = command["id"]
            await pubsub.subscribe(command["subject"])
        elif what == "psub":
            numbers[command["subject"]] = command["id"]
            await pubsub.psubscribe(command["subject"])
        elif what == "unsub":
            await pubsub.unsubscribe(command["subject"])
        elif what == "pub":
            receivers = 0
            if "count" in command:
                pipeline = client.pipeline(transaction=False)
                for number in range(command["count"]):
                    pipeline.publish(command["subject"], command["data"] + str(number))
                receivers = (await pipeline.execute())[-1]
            else:
                receivers = await client.publish(command["subject"], command["data"])
            report(receivers=receivers)
        elif what == "call":
            try:
                report(answer=await client.execute_command(*command["words"]))
            except ResponseError as error:
                report(answer=None, why=str(error))
        report(done=what)

    report(event="connected")
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await do(json.loads(line))
    reader.cancel()


asyncio.run(main(sys.argv[1]))
