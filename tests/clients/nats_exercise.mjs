// What a NATS client over WebSocket does in the tests, in Node and in a page alike. Returns a report.

const decoder = new TextDecoder();

/** Connects, and uses the bus in each way. `connect` and `headers` are those of the library. */
export async function exercise({ connect, headers }, options) {
  let client;
  try {
    client = await connect({ timeout: 20000, reconnect: false, ...options });
  } catch (error) {
    return { error: String(error) };
  }
  const received = [];
  const subscription = client.subscribe("ws.>", { max: 3 });
  const done = (async () => {
    for await (const message of subscription) {
      received.push({ subject: message.subject, bytes: message.data.length, sum: message.data.reduce((a, b) => (a + b) % 65521, 0),
        unit: message.headers?.get("Unit") ?? null });
    }
  })();
  client.subscribe("svc.echo", { callback: (_, message) => message.respond(message.data) });
  await client.flush();
  const fields = headers();
  fields.set("Unit", "m/s");
  client.publish("ws.text", new TextEncoder().encode("17.5"), { headers: fields });
  client.publish("ws.empty");
  // Several frames in each direction.
  client.publish("ws.large", new Uint8Array(300000).map((_, at) => at % 251));
  await done;
  const reply = await client.request("svc.echo", new TextEncoder().encode("hello"), { timeout: 20000 });
  let missing = null;
  try {
    await client.request("svc.nobody", undefined, { timeout: 20000 });
  } catch (error) {
    missing = /no responders|503/i.test(String(error) + String(error.code) + String(error.cause)) ? "no responders" : String(error);
  }
  const report = { server: client.info.version, received, reply: decoder.decode(reply.data), missing };
  await client.drain();
  return report;
}
