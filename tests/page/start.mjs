// Seeds a server that `longhaul dev` started: `node start.mjs URL KEY ROBOT_KEY FOLDER` prints what was made as JSON.
import { client, seed } from "./seed.mjs";

const [url, key, robot, folder] = process.argv.slice(2);
console.log(JSON.stringify(await seed(client(url, key), client(url, robot), folder), null, 1));
