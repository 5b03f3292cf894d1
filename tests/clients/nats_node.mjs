// A NATS client on @nats-io/transport-node for the tests. It reads a command and writes a report in each line, both as
// JSON objects.

import { connect, headers as newHeaders } from "@nats-io/transport-node";
import { createInterface } from "node:readline";

const report = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");
const text = (bytes) => new TextDecoder().decode(bytes);

const client = await connect({
  servers: process.argv[2],
  maxReconnectAttempts: -1,
  reconnectTimeWait: 100,
});
(async () => {
  for await (const status of client.status()) {
    if (status.type === "reconnect") report({ event: "reconnected" });
    if (status.type === "error") report({ event: "error", text: String(status.error) });
  }
})();
const subs = new Map();

function subscribe(command, onMessage) {
  const options = { callback: (error, message) => error ? report({ event: "error", text: String(error) }) : onMessage(message) };
  if (command.queue) options.queue = command.queue;
  return client.subscribe(command.subject, options);
}

async function act(command) {
  switch (command.do) {
    case "sub":
      subs.set(command.id, subscribe(command, (message) => {
        const fields = {};
        for (const [key, values] of message.headers ?? []) fields[key] = values.join(",");
        report({ msg: command.id, subject: message.subject, data: text(message.data), headers: fields });
      }));
      await client.flush();
      break;
    case "unsub":
      subs.get(command.id).unsubscribe(command.max);
      await client.flush();
      break;
    case "answer":
      subscribe(command, (message) => message.respond("re:" + text(message.data)));
      await client.flush();
      break;
    case "pub":
      for (let number = 0; number < (command.count ?? 1); number++) {
        let options;
        if (command.headers) {
          options = { headers: newHeaders() };
          for (const [key, value] of Object.entries(command.headers)) options.headers.set(key, value);
        }
        client.publish(command.subject, command.data + (command.count ? number : ""), options);
        if (number % 1000 === 999) await client.flush();
      }
      await client.flush();
      break;
    case "req":
      try {
        const answer = await client.request(command.subject, command.data, { timeout: command.timeout * 1000 });
        report({ answer: text(answer.data) });
      } catch (error) {
        const why = /no responders/i.test(String(error) + String(error.cause)) ? "no responders" : "timeout";
        report({ answer: null, why });
      }
      break;
    case "drain":
      await client.drain();
      break;
  }
  report({ done: command.do });
}

report({ event: "connected" });
for await (const line of createInterface({ input: process.stdin })) await act(JSON.parse(line));
await client.close();
