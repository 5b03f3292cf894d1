// A Redis client on node-redis that does what the tests say: a JSON object a line in, a JSON object a line out.

import { createClient } from "redis";
import { createInterface } from "node:readline";

const report = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");
const options = { url: process.argv[2], RESP: 3, socket: { reconnectStrategy: () => 100 } };
const client = createClient(options);
const subscriber = createClient(options);

let connected = 0;
for (const each of [client, subscriber]) each.on("error", () => {});
subscriber.on("ready", () => {
  if (connected++ > 0) report({ event: "reconnected" });
});
await client.connect();
await subscriber.connect();

async function act(command) {
  const onMessage = (data, channel) => report({ msg: command.id, subject: channel, data });
  switch (command.do) {
    case "sub":
      await subscriber.subscribe(command.subject, onMessage);
      report({ event: "subscribed", to: command.subject });
      break;
    case "psub":
      await subscriber.pSubscribe(command.subject, onMessage);
      report({ event: "subscribed", to: command.subject });
      break;
    case "unsub":
      await subscriber.unsubscribe(command.subject);
      break;
    case "pub": {
      let receivers = [];
      for (let number = 0; number < (command.count ?? 1); number++) {
        receivers.push(client.publish(command.subject, command.data + (command.count ? number : "")));
        if (receivers.length === 1000) receivers = [(await Promise.all(receivers)).at(-1)];
      }
      report({ receivers: (await Promise.all(receivers)).at(-1) });
      break;
    }
    case "call":
      try {
        report({ answer: await client.sendCommand(command.words) });
      } catch (error) {
        report({ answer: null, why: String(error.message) });
      }
      break;
  }
  report({ done: command.do });
}

report({ event: "connected" });
for await (const line of createInterface({ input: process.stdin })) await act(JSON.parse(line));
client.destroy();
subscriber.destroy();
