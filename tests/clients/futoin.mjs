// FutoIn clients (futoin-eventstream) that do what the tests say: a JSON object a line in, JSON objects a line out.
// Arguments: the port, user:secret, and whether the connection is encrypted (tls).

import GenFace from "futoin-eventstream/GenFace.js";
import PollFace from "futoin-eventstream/PollFace.js";
import LiveReceiver from "futoin-eventstream/LiveReceiver.js";
import ReliableReceiver from "futoin-eventstream/ReliableReceiver.js";
import invoker from "futoin-invoker";
import asyncsteps from "futoin-asyncsteps";
import { createInterface } from "node:readline";

const [port, credentials, tls] = process.argv.slice(2);
const http = `${tls ? "https" : "secure+http"}://127.0.0.1:${port}/main`;
const socket = `${tls ? "wss" : "secure+ws"}://127.0.0.1:${port}/main`;
const report = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");
const options = { limitZone: "unlimited" };

const ccm = new invoker.AdvancedCCM();

// Runs steps and gives what they come to.
const steps = (run) =>
  new Promise((resolve) => {
    const as = asyncsteps();
    let result;
    as.add(
      (as) => {
        run(as, (value) => (result = value));
      },
      (as, err) => {
        result = { error: err, info: as.state.error_info ?? null };
        as.success();
      },
    );
    as.add((as) => resolve(result));
    as.execute();
  });

await steps((as) => {
  GenFace.register(as, ccm, "gen", http, credentials, { ...options });
  GenFace.register(as, ccm, "wsgen", socket, credentials, { ...options });
  PollFace.register(as, ccm, "poll", http, credentials, { ...options });
});

const receivers = [];

function receive(command) {
  const Kind = command.live ? LiveReceiver : ReliableReceiver;
  const Receiver = class extends Kind {
    _onEvents(as, events) {
      report({ received: command.name, events: events.map(({ id, type, data }) => [id, type, data]) });
      if (command.live) as.add((as) => as.success(true));
    }
  };
  const receiver = new Receiver(new invoker.AdvancedCCM());
  receiver.on("workerError", (error, info) => report({ trouble: command.name, error, info: info ?? null }));
  receiver.on("ready", () => report({ ready: command.name }));
  receiver.start(socket, credentials, { ...options, component: command.component, want: command.want ?? null });
  receivers.push(receiver);
}

async function act(command) {
  const face = command.socket ? "wsgen" : "gen";
  switch (command.do) {
    case "ping":
      return steps((as, done) => {
        ccm.iface(face).ping(as, command.echo);
        as.add((as, echo) => done({ echo }));
      });
    case "add":
      return steps((as, done) => {
        ccm.iface(face).addEvent(as, command.type, command.data);
        as.add((as, id) => done({ id }));
      });
    case "add-many": {
      const ids = await Promise.all(
        Array.from({ length: command.count }, (_, number) =>
          steps((as, done) => {
            ccm.iface("wsgen").addEvent(as, command.type, command.from + number);
            as.add((as, id) => done(id));
          }),
        ),
      );
      return { ids };
    }
    case "register":
      return steps((as, done) => {
        ccm.iface("poll").registerConsumer(as, command.component);
        as.add((as, registered) => done({ registered }));
      });
    case "poll":
      return steps((as, done) => {
        ccm.iface("poll").pollEvents(as, command.component, command.last ?? null, command.want ?? null);
        as.add((as, events) => done({ events: events.map(({ id, type, data }) => [id, type, data]) }));
      });
    case "receive":
      receive(command);
      return {};
  }
  throw new Error(`what is ${command.do}?`);
}

report({ event: "started" });
for await (const line of createInterface({ input: process.stdin })) report({ done: await act(JSON.parse(line)) });
process.exit(0);
