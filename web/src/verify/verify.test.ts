import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { describe, expect, it, vi } from "vitest";
import type { Proof } from "../api/types";
import { blake3 } from "./blake3";
import { checkProof, fromHex, rootOf, toHex } from "./proof";

/** Inputs of the official test vectors: bytes 0, 1, …, 250, 0, 1, … */
const input = (length: number) => Uint8Array.from({ length }, (_, i) => i % 251);

describe("BLAKE3", () => {
  it.each([
    [0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"],
    [1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"],
    [1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"],
    [1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"],
    [1025, "d00278ae47eb27b34faecf67b4fe263f82d5412916c1ffd97c8cb7fb814b8444"],
    [2049, "5f4d72f40d7a5f82b15ca2b2e44b1de3c2ef86c426c95c1af0b6879522563030"],
    [31744, "62b6960e1a44bcc1eb1a611a8d6235b6b4b78f32e7abc4fb4c6cdcce94895c47"],
  ])("of %i bytes is as published", (length, hash) => {
    expect(toHex(blake3(input(length)))).toBe(hash);
  });
});

const node = (left: Uint8Array, right: Uint8Array) => blake3(Uint8Array.of(1, ...left, ...right));
const leafOf = (frame: Uint8Array) => blake3(Uint8Array.of(0, ...frame));

/** The tree of RFC 6962 by its definition. */
function tree(leaves: Uint8Array[]): Uint8Array {
  if (leaves.length === 1) return leaves[0]!;
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  return node(tree(leaves.slice(0, split)), tree(leaves.slice(split)));
}

function pathOf(leaves: Uint8Array[], index: number): Uint8Array[] {
  if (leaves.length === 1) return [];
  let split = 1;
  while (split * 2 < leaves.length) split *= 2;
  return index < split
    ? [...pathOf(leaves.slice(0, split), index), tree(leaves.slice(split))]
    : [...pathOf(leaves.slice(split), index - split), tree(leaves.slice(0, split))];
}

describe("proofs", () => {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = publicKey.export({ format: "der", type: "spki" }).subarray(-32);
  const frames = Array.from({ length: 13 }, (_, i) => createHash("sha256").update(String(i)).digest());
  const leaves = frames.map((frame) => leafOf(frame));

  function proof(index: number, size: number): Proof {
    const root = tree(leaves.slice(0, size));
    const signed = Buffer.alloc(80);
    signed.write("bursar check v1\0", 0, "latin1");
    signed.writeBigUInt64LE(BigInt(size), 32);
    signed.set(root, 40);
    const checkpoint = { journal: "00".repeat(16), size, root: toHex(root), signed_at: "", signed: Buffer.concat([signed, sign(null, signed, privateKey)]).toString("hex"), public_key: raw.toString("hex") };
    return { position: index + 1, frame: frames[index]!.toString("hex"), path: pathOf(leaves.slice(0, size), index).map(toHex), checkpoint };
  }

  it("hold for every record of trees of every size", async () => {
    for (let size = 1; size <= leaves.length; size++) {
      for (let index = 0; index < size; index++) expect((await checkProof(proof(index, size))).isValid).toBe(true);
    }
  });

  it("fail for another record, place, path, root or signature", async () => {
    const good = proof(5, 13);
    const flip = (hex: string) => (hex.startsWith("0") ? "1" : "0") + hex.slice(1);
    const wrong: Proof[] = [
      { ...good, frame: flip(good.frame) },
      { ...good, position: 7 },
      { ...good, path: good.path.slice(1) },
      { ...good, path: [...good.path, good.path[0]!] },
      { ...good, checkpoint: { ...good.checkpoint, root: flip(good.checkpoint.root) } },
      { ...good, checkpoint: { ...good.checkpoint, size: 12 } },
      { ...good, checkpoint: { ...good.checkpoint, signed: flip(good.checkpoint.signed) } },
      { ...good, checkpoint: { ...good.checkpoint, public_key: proof(0, 1).checkpoint.root } },
    ];
    for (const one of wrong) expect((await checkProof(one)).isValid).toBe(false);
  });

  it("say when a browser cannot check the signature", async () => {
    const whole = proof(1, 3);
    expect(await checkProof(whole)).toMatchObject({ isValid: true, isSigned: true });
    const unsupported = vi.spyOn(crypto.subtle, "importKey").mockRejectedValue(new DOMException("no Ed25519", "NotSupportedError"));
    expect(await checkProof(whole)).toMatchObject({ isValid: true, isSigned: false });
    unsupported.mockRestore();
    expect(rootOf(fromHex(""), 3, 3, [])).toBeUndefined();
  });
});
