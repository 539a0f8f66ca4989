import type { Checkpoint, Proof } from "../api/types";
import { blake3 } from "./blake3";

/** A checkpoint: name, journal, size, root, time, and the signature over them. */
const NAME = "bursar check v1\0";
const SIGNED_LENGTH = 80;
const SIZE_AT = 32;
const ROOT_AT = 40;

export function fromHex(hex: string): Uint8Array<ArrayBuffer> {
  if (!/^([0-9a-f]{2})*$/.test(hex)) throw new RangeError("not hexadecimal");
  return Uint8Array.from({ length: hex.length / 2 }, (_, i) => Number.parseInt(hex.slice(i * 2, i * 2 + 2), 16));
}

export const toHex = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

const join = (...parts: Uint8Array[]): Uint8Array => {
  const all = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
};

const node = (left: Uint8Array, right: Uint8Array) => blake3(join(Uint8Array.of(1), left, right));

/** The root that an inclusion proof leads to (RFC 9162, 2.1.3.2); `undefined` if it has the wrong length. */
export function rootOf(leaf: Uint8Array, index: number, size: number, path: Uint8Array[]): Uint8Array | undefined {
  if (index >= size) return undefined;
  let [fn, sn, hash] = [index, size - 1, leaf];
  for (const sibling of path) {
    if (sn === 0) return undefined;
    if (fn % 2 === 1 || fn === sn) {
      hash = node(sibling, hash);
      while (fn % 2 === 0 && fn !== 0) {
        fn = Math.floor(fn / 2);
        sn = Math.floor(sn / 2);
      }
    } else {
      hash = node(hash, sibling);
    }
    fn = Math.floor(fn / 2);
    sn = Math.floor(sn / 2);
  }
  return sn === 0 ? hash : undefined;
}

/** Whether the signature is right and covers the size and root; `unsupported` in browsers without Ed25519. */
export async function checkCheckpoint(checkpoint: Checkpoint): Promise<boolean | "unsupported"> {
  const signed = fromHex(checkpoint.signed);
  const view = new DataView(signed.buffer);
  const isForm = signed.length === SIGNED_LENGTH + 64 && new TextDecoder().decode(signed.subarray(0, 16)) === NAME;
  if (!isForm || view.getBigUint64(SIZE_AT, true) !== BigInt(checkpoint.size)) return false;
  if (toHex(signed.subarray(ROOT_AT, ROOT_AT + 32)) !== checkpoint.root) return false;
  try {
    const key = await crypto.subtle.importKey("raw", fromHex(checkpoint.public_key), "Ed25519", false, ["verify"]);
    return await crypto.subtle.verify("Ed25519", key, signed.subarray(SIGNED_LENGTH), signed.subarray(0, SIGNED_LENGTH));
  } catch {
    return "unsupported";
  }
}

/** Whether a record is in the journal of its checkpoint, whether this browser checked the signature of that, and the record's hash. */
export async function checkProof(proof: Proof): Promise<{ isValid: boolean; isSigned: boolean; leaf: string }> {
  const leaf = blake3(join(Uint8Array.of(0), fromHex(proof.frame)));
  const root = rootOf(leaf, proof.position - 1, proof.checkpoint.size, proof.path.map(fromHex));
  const signature = await checkCheckpoint(proof.checkpoint);
  return { isValid: signature !== false && root !== undefined && toHex(root) === proof.checkpoint.root, isSigned: signature === true, leaf: toHex(leaf) };
}

/** The file that `bursar audit` checks offline. */
export const proofFile = ({ position, frame, path, checkpoint }: Proof) => ({ proof: "record", position, frame, path, checkpoint: checkpoint.signed });
