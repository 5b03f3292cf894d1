"""A client on nats-py or redis-py that connects as a test specifies, subscribes to its own messages, and prints the
outcome as a JSON object.

The argument is a JSON object: `url`; `ca`, a file with the trusted certificate; `cert` and `key`, files with a
certificate of the client; `tls_first`, if the handshake comes before INFO; `seed` of an nkey; `protocol` of Redis.
"""

import asyncio
import json
import ssl
import sys

import nats
import redis.asyncio as redis


async def nats_client(wanted):
    reasons = []
    is_refused = asyncio.Event()

    async def on_error(error):
        reasons.append(str(error))
        is_refused.set()

    trusted = ssl.create_default_context(cafile=wanted["ca"]) if wanted.get("ca") else None
    if wanted.get("cert"):
        trusted.load_cert_chain(wanted["cert"], wanted["key"])
    try:
        client = await nats.connect(
            wanted["url"],
            tls=trusted,
            tls_handshake_first=wanted.get("tls_first", False),
            nkeys_seed_str=wanted.get("seed"),
            error_cb=on_error,
            allow_reconnect=False,
            connect_timeout=30,
        )
    except Exception as error:
        raise ConnectionError(" ".join([type(error).__name__, str(error), *reasons])) from error
    subscription = await client.subscribe("enter")
    await client.publish("enter", b"hello", headers={"from": "me"})
    # The library calls `on_error` in a task of its own, at any time.
    message = asyncio.ensure_future(subscription.next_msg(timeout=30))
    await asyncio.wait({message, asyncio.ensure_future(is_refused.wait())}, return_when=asyncio.FIRST_COMPLETED)
    if reasons:
        raise PermissionError(" ".join(reasons))
    message = await message
    is_encrypted = client._transport._io_writer.get_extra_info("ssl_object") is not None
    received = {"data": message.data.decode(), "headers": dict(message.headers or {}), "encrypted": is_encrypted}
    await client.close()
    return received


async def redis_client(wanted):
    more = {"ssl_ca_certs": wanted["ca"]} if wanted.get("ca") else {}
    if wanted.get("cert"):
        more |= {"ssl_certfile": wanted["cert"], "ssl_keyfile": wanted["key"]}
    client = redis.Redis.from_url(wanted["url"], protocol=wanted.get("protocol", 3), decode_responses=True, **more)
    pubsub = client.pubsub()
    await pubsub.subscribe("enter")
    await pubsub.get_message(timeout=30)
    await client.publish("enter", "hello")
    message = await pubsub.get_message(timeout=30)
    await pubsub.aclose()
    await client.aclose()
    return {"data": message["data"], "encrypted": wanted["url"].startswith("rediss:")}


async def main(wanted):
    enter = nats_client if wanted["url"].startswith(("nats:", "tls:")) else redis_client
    try:
        received = await asyncio.wait_for(enter(wanted), 60)
    except Exception as error:
        received = {"why": f"{type(error).__name__}: {error}"}
    print(json.dumps(received))


asyncio.run(main(json.loads(sys.argv[1])))
