// A NATS client over WebSocket in Node: the library @nats-io/nats-core. Prints a JSON object.
//
// Arguments: the server, such as ws://127.0.0.1:9222, and for an account its user and its password.

import { headers, wsconnect } from "@nats-io/nats-core";
import WebSocket from "ws";
import { exercise } from "./nats_exercise.mjs";

globalThis.WebSocket = WebSocket;
const [servers, user, pass] = process.argv.slice(2);
console.log(JSON.stringify(await exercise({ connect: wsconnect, headers }, { servers, ...(user ? { user, pass } : {}) })));
process.exit(0);
