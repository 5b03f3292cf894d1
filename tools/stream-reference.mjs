// The published implementation of event streams (futoin-eventstream) as a server on a WebSocket, with a SQLite file.
// Arguments: the port, and the new file. Its settings give the durability of a peer: WAL with synchronous=FULL.

// First of all, since asyncsteps freezes what moment wants to change.
import "moment";
import { readFileSync } from "node:fs";
import asyncsteps from "futoin-asyncsteps";
import AutoConfig from "futoin-database/AutoConfig.js";
import DBGenService from "futoin-eventstream/DBGenService.js";
import DBPushService from "futoin-eventstream/DBPushService.js";
import LegacySecurityProvider from "futoin-executor/LegacySecurityProvider.js";
import NodeExecutor from "futoin-executor/NodeExecutor.js";
import invoker from "futoin-invoker";
import sqlite3 from "sqlite3";

const [port, file] = process.argv.slice(2);
const tables = new URL("node_modules/futoin-eventstream/sql/active/sqlite/V18.1__Tables.sql", import.meta.url);

await new Promise((resolve, reject) => {
  const made = new sqlite3.Database(file);
  const done = (error) => (error ? reject(error) : resolve());
  made.exec(readFileSync(tables, "utf8"), (error) => (error ? reject(error) : made.close(done)));
});

const ccm = new invoker.AdvancedCCM();
const fail = (as, error) => {
  console.error(error, as.state.error_info, as.state.last_exception);
  process.exit(1);
};

asyncsteps()
  .add((as) => {
    const users = new LegacySecurityProvider(as, ccm);
    users.addUser("bench", "x", {});
    AutoConfig(as, ccm, { evt: {} }, { DB_EVT_TYPE: "sqlite", DB_EVT_SOCKET: file });
    for (const pragma of ["journal_mode=WAL", "synchronous=FULL"]) {
      as.add((as) => ccm.db("evt").query(as, `PRAGMA ${pragma}`));
    }
    as.add((as) => {
      const executor = new NodeExecutor(ccm, {
        httpAddr: "127.0.0.1",
        httpPort: Number(port),
        httpPath: "/main",
        secureChannel: true,
        securityProvider: users,
        enableLimiter: false,
        prodMode: true,
      });
      executor.on("notExpected", (error, info) => console.error(error, info));
      DBGenService.register(as, executor, {});
      // No answer of it can have more than 64 kB; that is what fits of the events of the bench.
      DBPushService.register(as, executor, { max_chunk_events: 300 });
      as.add((as) => console.log("ready"));
    });
  }, fail)
  .execute();
