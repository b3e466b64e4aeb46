/** A proxy in front of the API that spoils connections. */

import { type AddressInfo, type Socket, connect, createServer } from "node:net";

/**
 * `cutAfter`: the connection ends in the answer, after this text. `answer`: the client gets this text, and the API
 * nothing.
 */
export type Fault = { cutAfter: string } | { answer: string };

export interface Proxy {
  url: string;
  /** First line of every request. */
  lines: string[];
  /** Resolves when so many connections have sent a request. */
  requests(count: number): Promise<void>;
  /** A header of the first request of a connection. */
  header(connection: number, name: string): string | undefined;
  close(): void;
}

/** Forwards connections; each of the first ones has its fault. */
export async function startProxy(upstream: string, ...faults: Fault[]): Promise<Proxy> {
  const { hostname, port } = new URL(upstream);
  const requests: string[] = [];
  const lines: string[] = [];
  const waiters = new Set<() => void>();
  const note = (data: Buffer) => {
    for (const [, line = ""] of data.toString("latin1").matchAll(/^([A-Z]+ \S+) HTTP\/1\.1\r$/gm)) lines.push(line);
    for (const wake of waiters) wake();
  };
  const server = createServer(async (client) => {
    client.on("error", () => client.destroy());
    const connection = requests.push("") - 1;
    const fault = faults.shift();
    const request = await readRequest(client);
    requests[connection] = request.toString();
    note(request);
    if (fault && "answer" in fault) {
      client.end(fault.answer);
      return;
    }
    const api = connect(Number(port), hostname);
    api.on("error", () => client.destroy());
    api.on("close", () => client.end());
    client.on("close", () => api.destroy());
    api.write(request);
    client.on("data", note);
    client.pipe(api);
    client.resume();
    let seen = "";
    api.on("data", (data) => {
      const sent = seen.length;
      seen += data.toString("latin1");
      const end = fault ? seen.indexOf(fault.cutAfter) : -1;
      if (fault && end >= 0) {
        client.write(Buffer.from(seen.slice(sent, end + fault.cutAfter.length), "latin1"));
        client.end();
        api.destroy();
      } else {
        client.write(data);
      }
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lines,
    requests: (count) =>
      new Promise((resolve) => {
        const look = () => {
          if (requests.filter(Boolean).length < count) return;
          waiters.delete(look);
          resolve();
        };
        waiters.add(look);
        look();
      }),
    header: (connection, name) => new RegExp(`^${name}: (.*)\\r$`, "im").exec(requests[connection] ?? "")?.[1],
    close: () => server.close(),
  };
}

function readRequest(client: Socket): Promise<Buffer> {
  return new Promise((resolve) => {
    let request = Buffer.alloc(0);
    client.on("data", function read(data) {
      request = Buffer.concat([request, data as Buffer]);
      const head = request.indexOf("\r\n\r\n");
      const length = Number(/content-length: (\d+)/i.exec(request.toString("latin1"))?.[1] ?? 0);
      if (head < 0 || request.length < head + 4 + length) return;
      client.off("data", read);
      client.pause();
      resolve(request);
    });
  });
}
