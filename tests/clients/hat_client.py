"""A client of Hat on hat-event that does what the tests say: a JSON object a line in, a JSON object a line out.

hat_client.py PORT [OPTIONS]: OPTIONS is a JSON object with any of name, token, subscriptions, server, persisted, and ca
with the file of an authority, to which certificate adds the files of a certificate and its key.
"""

import asyncio
import json
import ssl
import sys

from hat.drivers import net
from hat.event import common, eventer


def report(**fields):
    print(json.dumps(fields), flush=True)


def payload_out(payload):
    if isinstance(payload, common.EventPayloadJson):
        # As text, for it may be NaN, which JSON is not.
        return {"json": json.dumps(payload.data)}
    return payload and {"binary": payload.type, "hex": bytes(payload.data).hex()}


def events_out(events):
    def event_out(event):
        source = event.source_timestamp
        return {
            "id": list(event.id),
            "type": list(event.type),
            "time": list(event.timestamp),
            "source": source and list(source),
            "payload": payload_out(event.payload),
        }

    return [event_out(event) for event in events]


def event_in(event):
    payload = None
    if "json" in event:
        payload = common.EventPayloadJson(json.loads(event["json"]))
    if "binary" in event:
        payload = common.EventPayloadBinary(event["binary"], bytes.fromhex(event["hex"]))
    return common.RegisterEvent(tuple(event["type"]), time_in(event.get("source")), payload)


def time_in(time):
    return time and common.Timestamp(*time)


def id_in(event_id):
    return event_id and common.EventId(*event_id)


def types_in(types):
    return None if types is None else [tuple(event_type) for event_type in types]


def params_in(command):
    types, limit, after = types_in(command.get("types")), command.get("max"), id_in(command.get("after"))
    if command["do"] == "latest":
        return common.QueryLatestParams(types)
    if command["do"] == "server":
        return common.QueryServerParams(command["server"], command.get("persisted", False), limit, after)
    bounds = [time_in(command.get(bound)) for bound in ("from", "to", "source_from", "source_to")]
    order = common.Order.ASCENDING if command.get("ascending") else common.Order.DESCENDING
    by = common.OrderBy.SOURCE_TIMESTAMP if command.get("by_source") else common.OrderBy.TIMESTAMP
    return common.QueryTimeseriesParams(types, *bounds, order, by, limit, after)


def encryption(options):
    if "ca" not in options:
        return {}
    context = ssl.create_default_context(cafile=options["ca"])
    if "certificate" in options:
        context.load_cert_chain(*options["certificate"])
    return {"ssl": context}


async def main(port, options):
    try:
        client = await eventer.connect(
            net.TcpAddress("127.0.0.1", port),
            options.get("name", "test"),
            client_token=options.get("token"),
            subscriptions=types_in(options.get("subscriptions", [])),
            server_id=options.get("server"),
            persisted=options.get("persisted", False),
            status_cb=lambda _, status: report(status=status.value),
            events_cb=lambda _, events: report(notified=events_out(events)),
            **encryption(options),
        )
    except eventer.EventerInitError as error:
        report(event="refused", text=str(error))
        return
    except ConnectionError:
        report(event="closed")
        return

    async def do(command):
        what = command["do"]
        if what == "register":
            events = [event_in(event) for event in command["events"]]
            wants_answer = command.get("answer", True)
            registered = await client.register(events, wants_answer)
            if wants_answer:
                report(registered=None if registered is None else events_out(registered))
        elif what == "burst":
            # Many requests before the first answer.
            requests = [[event_in({**event, "json": str(n)}) for event in command["events"]] for n in range(command["count"])]
            answers = await asyncio.gather(*(client.register(events, True) for events in requests))
            report(sessions=[events and events[0].id.session for events in answers])
        else:
            result = await client.query(params_in(command))
            report(answer=events_out(result.events), more=result.more_follows)
        report(done=what)

    report(event="connected", status=client.status.value)
    loop = asyncio.get_running_loop()

    async def obey():
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                await do(json.loads(line))
            except ConnectionError:
                return
        await client.async_close()

    obeying = asyncio.create_task(obey())
    await asyncio.wait([obeying, asyncio.create_task(client.wait_closed())], return_when=asyncio.FIRST_COMPLETED)
    if obeying.done():
        obeying.result()
    else:
        report(event="closed")


asyncio.run(main(int(sys.argv[1]), json.loads(sys.argv[2] if 2 < len(sys.argv) else "{}")))
