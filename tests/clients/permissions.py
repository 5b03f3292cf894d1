"""Two clients on nats-py or redis-py: one with an account that has permissions, and one that may do everything. They
publish, subscribe, request and answer; the script prints what each was refused and received as a JSON object.

The argument is a JSON object with the URLs of both: `limited` and `free`. The limited account may publish on `plant.>`
and subscribe to `cmd.*`.
"""

import asyncio
import json
import sys

import nats
import redis.asyncio as redis

TIME = 30


async def connect(url, refused):
    async def on_error(error):
        refused.append(str(error))

    return await nats.connect(url, error_cb=on_error, allow_reconnect=False, connect_timeout=TIME)


async def nats_clients(wanted):
    refused, received, observed = [], [], []
    limited, free = await connect(wanted["limited"], refused), await connect(wanted["free"], refused)

    async def answer(message):
        received.append([message.subject, message.data.decode()])
        if message.reply:
            await message.respond(b"answer of limited")

    async def observe(message):
        observed.append([message.subject, message.data.decode()])
        if message.subject == "plant.ask":
            await message.respond(b"answer of free")

    await free.subscribe("plant.>", cb=observe)
    await free.subscribe("secret.>", cb=observe)
    for pattern, queue in [(">", ""), ("plant.a", ""), ("cmd.>", "workers"), ("_INBOX.>", ""), ("cmd.*", "")]:
        await limited.subscribe(pattern, queue=queue, cb=answer)
    await free.flush(TIME)
    await limited.flush(TIME)
    await limited.publish("secret.a", b"hidden payload")
    await limited.publish("plant.b", b"hidden payload", reply="secret.a")
    await limited.publish("plant.a", b"from limited")
    await limited.flush(TIME)
    await free.publish("secret.a", b"from free")
    await free.publish("cmd.a.b", b"from free")
    asked = (await free.request("cmd.ask", b"from free", timeout=TIME)).data.decode()
    asking = (await limited.request("plant.ask", b"from limited", timeout=TIME)).data.decode()
    await limited.flush(TIME)
    await free.flush(TIME)
    answers = [asked, asking]
    is_open = limited.is_connected and free.is_connected
    await limited.close()
    await free.close()
    return {"refused": refused, "received": received, "observed": sorted(observed), "answers": answers, "open": is_open}


async def redis_clients(wanted):
    limited, free = [redis.Redis.from_url(wanted[name], decode_responses=True) for name in ("limited", "free")]
    refused, received = [], []

    async def attempt(what):
        try:
            return await what
        except redis.RedisError as error:
            refused.append(f"{type(error).__name__}: {error}")

    pubsub = limited.pubsub()
    names = [("subscribe", "secret.a"), ("psubscribe", "*"), ("psubscribe", "cmd*"), ("subscribe", "cmd.a")]
    for command, name in names:
        await attempt(getattr(pubsub, command)(name))
        if await attempt(pubsub.get_message(timeout=TIME)):
            received.append(name)
    published = [await attempt(limited.publish(name, "hidden payload")) for name in ("secret.a", "cmd.a", "plant.a")]
    await free.publish("secret.a", "from free")
    await free.publish("cmd.a", "from free")
    message = await pubsub.get_message(timeout=TIME)
    is_open = await limited.ping()
    await pubsub.aclose()
    await limited.aclose()
    await free.aclose()
    data = [message["channel"], message["data"]]
    return {"refused": refused, "received": received, "published": published, "message": data, "open": is_open}


async def main(wanted):
    run = nats_clients if wanted["limited"].startswith("nats:") else redis_clients
    print(json.dumps(await asyncio.wait_for(run(wanted), 2 * TIME)))


asyncio.run(main(json.loads(sys.argv[1])))
