// An OpenID Connect provider (npm's `oidc-provider`) without a form: the body of `POST /become` has the claims of the
// person that signs in next, and "sub": null declines. Prints its address. Arguments: client secret, redirect URI.
import http from "node:http";
import Provider from "oidc-provider";

const [secret, redirect] = process.argv.slice(2);
const people = new Map();
let current = null;

const server = http.createServer();
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [{ client_id: "longhaul", client_secret: secret, redirect_uris: [redirect] }],
  claims: { openid: ["sub"], email: ["email"], profile: ["name", "groups", "org"] },
  cookies: { keys: ["of the tests"] },
  features: { devInteractions: { enabled: false } },
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...people.get(id) }) }),
});

async function interact(request, response) {
  const { prompt, session, params } = await provider.interactionDetails(request, response);
  if (current === null) {
    const declined = { error: "access_denied", error_description: "declined" };
    return provider.interactionFinished(request, response, declined);
  }
  if (prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: current } });
  }
  const grant = new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

async function become(request, response) {
  let text = "";
  for await (const chunk of request) text += chunk;
  const { sub, ...claims } = JSON.parse(text);
  current = sub;
  if (sub !== null) people.set(sub, claims);
  response.end();
}

const answer = provider.callback();
server.on("request", (request, response) => {
  if (request.url === "/become") return become(request, response);
  if (request.url.startsWith("/interaction/")) {
    return interact(request, response).catch((error) => response.writeHead(500).end(String(error.stack)));
  }
  return answer(request, response);
});
console.log(issuer);
