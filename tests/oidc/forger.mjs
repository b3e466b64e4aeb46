// A provider that signs in at once, with a token that is wrong in the way that `POST /forge` names. Prints its address.
// Arguments: client secret, redirect URI.
import http from "node:http";
import { SignJWT, UnsecuredJWT, exportJWK, generateKeyPair } from "jose";

const [secret, redirect] = process.argv.slice(2);
const own = await generateKeyPair("RS256");
const foreign = await generateKeyPair("RS256");
let forgery = "none of them";
let nonce;

const server = http.createServer();
await new Promise((done) => server.listen(0, "127.0.0.1", done));
const issuer = `http://127.0.0.1:${server.address().port}`;

async function token() {
  const now = Math.floor(Date.now() / 1000);
  const claims = { nonce, name: "Eve", email: "eve@example.org", groups: ["ops"], org: "acme" };
  if (forgery === "nonce") claims.nonce = "of another sign-in";
  if (forgery === "no nonce") delete claims.nonce;
  if (forgery === "access token") claims.at_hash = "AAAAAAAAAAAAAAAAAAAAAA";
  const fill = (jwt) =>
    jwt
      .setIssuer(forgery === "issuer" ? "https://other.example" : issuer)
      .setAudience(forgery === "audience" ? "another client" : "longhaul")
      .setSubject("eve")
      .setIssuedAt(now)
      .setExpirationTime(forgery === "time" ? now - 3600 : now + 600);
  if (forgery === "unsigned") return fill(new UnsecuredJWT(claims)).encode();
  if (forgery === "algorithm") {
    const key = new TextEncoder().encode(secret);
    return fill(new SignJWT(claims)).setProtectedHeader({ alg: "HS256" }).sign(key);
  }
  const key = forgery === "key" ? foreign.privateKey : own.privateKey;
  return fill(new SignJWT(claims)).setProtectedHeader({ alg: "RS256", kid: "own" }).sign(key);
}

async function answer(request) {
  const url = new URL(request.url, issuer);
  switch (url.pathname) {
    case "/.well-known/openid-configuration":
      return {
        issuer,
        authorization_endpoint: `${issuer}/auth`,
        token_endpoint: `${issuer}/token`,
        jwks_uri: `${issuer}/jwks`,
        response_types_supported: ["code"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["RS256"],
      };
    case "/jwks":
      return { keys: [{ ...(await exportJWK(own.publicKey)), kid: "own", use: "sig", alg: "RS256" }] };
    case "/auth":
      nonce = url.searchParams.get("nonce");
      return { location: `${redirect}?code=c&state=${encodeURIComponent(url.searchParams.get("state"))}` };
    case "/token":
      if (forgery === "large answer") return { padding: "x".repeat(2 * 1024 * 1024) };
      return { access_token: "a", token_type: "Bearer", expires_in: 60, id_token: await token() };
    default:
      return {};
  }
}

server.on("request", async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  if (request.url === "/forge") forgery = text;
  const body = await answer(request);
  if (body.location) {
    response.writeHead(303, { location: body.location }).end();
  } else {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(body));
  }
});
console.log(issuer);
