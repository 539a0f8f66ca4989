// An identity provider that lies. Prints its URL. `GET /mode?is=NAME` says how.
import http from "node:http";
import crypto from "node:crypto";
import { SignJWT, UnsecuredJWT, exportJWK, generateKeyPair } from "jose";

let mode = "honest";
const codes = new Map();
const pair = async (kid) => ({ kid, ...(await generateKeyPair("ES256")) });
let shown = [await pair("first")];
const hidden = await pair("hidden");

async function token(issuer, { nonce }) {
  const now = Math.floor(Date.now() / 1000);
  const claims = { sub: "eve", name: "Eve", groups: ["nlp"], nonce, iss: issuer, aud: "bursar", iat: now, exp: now + 300 };
  if (mode === "wrong_issuer") claims.iss = "https://id.example";
  if (mode === "wrong_audience") claims.aud = "another";
  if (mode === "other_party") Object.assign(claims, { aud: ["bursar", "another"], azp: "another" });
  if (mode === "expired") Object.assign(claims, { iat: now - 7200, exp: now - 3600 });
  if (mode === "not_yet") claims.nbf = now + 3600;
  if (mode === "no_expiry") delete claims.exp;
  if (mode === "wrong_nonce") claims.nonce = "another";
  if (mode === "no_nonce") delete claims.nonce;
  if (mode === "no_group") delete claims.groups;
  if (mode === "hostile_names") Object.assign(claims, { name: "<script>alert(1)</script>", groups: ["x"] });
  if (mode === "control_subject") claims.sub = "a\nb";
  if (mode === "none") return new UnsecuredJWT(claims).encode();
  if (mode === "shared_secret") {
    const key = new TextEncoder().encode(JSON.stringify(await exportJWK(shown[0].publicKey)));
    return new SignJWT(claims).setProtectedHeader({ alg: "HS256", kid: "first" }).sign(key);
  }
  if (mode === "unknown_key") {
    return new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid: "hidden" }).sign(hidden.privateKey);
  }
  if (mode === "wrong_key") {
    return new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid: shown[0].kid }).sign(hidden.privateKey);
  }
  const key = shown[shown.length - 1];
  const signed = await new SignJWT(claims).setProtectedHeader({ alg: "ES256", kid: key.kid }).sign(key.privateKey);
  if (mode === "altered") {
    const [head, , seal] = signed.split(".");
    const body = Buffer.from(JSON.stringify({ ...claims, groups: ["gpu-admins"] })).toString("base64url");
    return [head, body, seal].join(".");
  }
  return signed;
}

async function redeem(issuer, form) {
  const ticket = codes.get(form.get("code"));
  codes.delete(form.get("code"));
  const hash = crypto.createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
  if (!ticket || hash !== ticket.challenge || form.get("client_id") !== "bursar") {
    return [400, { error: "invalid_grant" }];
  }
  return [200, { token_type: "Bearer", access_token: "x", id_token: await token(issuer, ticket) }];
}

const server = http.createServer(async (request, response) => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const url = new URL(request.url, issuer);
  const say = (status, body) => {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
  };
  if (url.pathname === "/mode") {
    mode = url.searchParams.get("is");
    if (mode === "rotated") shown = [await pair("second")];
    return say(200, {});
  }
  if (url.pathname === "/.well-known/openid-configuration") {
    if (mode === "down") return request.socket.destroy();
    return say(200, {
      issuer: mode === "foreign" ? "https://id.example" : issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: mode === "plain" ? "http://id.example/token" : `${issuer}/token`,
      jwks_uri: `${issuer}/keys`,
    });
  }
  if (url.pathname === "/keys") {
    const keys = shown.map(async ({ kid, publicKey }) => ({ ...(await exportJWK(publicKey)), kid, use: "sig" }));
    return say(200, { keys: [{ kty: "unknown" }, ...(await Promise.all(keys))] });
  }
  if (url.pathname === "/authorize") {
    const back = new URL(url.searchParams.get("redirect_uri"));
    back.searchParams.set("state", url.searchParams.get("state"));
    if (mode === "refuses") {
      back.searchParams.set("error", "access_denied");
    } else {
      const code = crypto.randomUUID();
      codes.set(code, { nonce: url.searchParams.get("nonce"), challenge: url.searchParams.get("code_challenge") });
      back.searchParams.set("code", code);
    }
    response.writeHead(303, { location: back.toString() });
    return response.end();
  }
  if (url.pathname === "/token") {
    let body = "";
    for await (const piece of request) body += piece;
    if (mode === "large") return say(200, { id_token: "x".repeat(3 << 20) });
    return say(...(await redeem(issuer, new URLSearchParams(body))));
  }
  return say(404, {});
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
