// A Redis client on ioredis that does what the tests say: a JSON object a line in, a JSON object a line out.

import { Redis } from "ioredis";
import { createInterface } from "node:readline";

const report = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");
const options = { retryStrategy: () => 100, maxRetriesPerRequest: null };
const client = new Redis(process.argv[2], options);
const subscriber = new Redis(process.argv[2], options);
const numbers = new Map();

for (const each of [client, subscriber]) each.on("error", () => {});
let connected = 0;
subscriber.on("ready", () => {
  if (connected++ > 0) report({ event: "reconnected" });
});
subscriber.on("message", (channel, data) => report({ msg: numbers.get(channel), subject: channel, data }));
subscriber.on("pmessage", (pattern, channel, data) => report({ msg: numbers.get(pattern), subject: channel, data }));

async function act(command) {
  switch (command.do) {
    case "sub":
      numbers.set(command.subject, command.id);
      await subscriber.subscribe(command.subject);
      report({ event: "subscribed", to: command.subject });
      break;
    case "psub":
      numbers.set(command.subject, command.id);
      await subscriber.psubscribe(command.subject);
      report({ event: "subscribed", to: command.subject });
      break;
    case "unsub":
      await subscriber.unsubscribe(command.subject);
      break;
    case "pub": {
      let receivers = 0;
      if (command.count) {
        const pipeline = client.pipeline();
        for (let number = 0; number < command.count; number++) pipeline.publish(command.subject, command.data + number);
        receivers = (await pipeline.exec()).at(-1)[1];
      } else {
        receivers = await client.publish(command.subject, command.data);
      }
      report({ receivers });
      break;
    }
    case "call":
      try {
        report({ answer: await client.call(...command.words) });
      } catch (error) {
        report({ answer: null, why: String(error.message) });
      }
      break;
  }
  report({ done: command.do });
}

await client.ping();
await subscriber.ping();
report({ event: "connected" });
for await (const line of createInterface({ input: process.stdin })) await act(JSON.parse(line));
client.disconnect();
subscriber.disconnect();
