import type { Bytes } from "./api.js";

/** Returns the text of output or of a small file. Bytes that are not text become U+FFFD. */
export function textOf(b: Bytes | undefined): string {
  return typeof b === "string" ? b : b === undefined ? "" : new TextDecoder().decode(bytesOf(b));
}

/** Returns the bytes of output or of a small file. */
export function bytesOf(b: Bytes | undefined): Uint8Array {
  if (b === undefined || typeof b === "string") {
    return new TextEncoder().encode(b ?? "");
  }
  return Uint8Array.from(atob(b.base64), (c) => c.charCodeAt(0));
}

/** Returns text or bytes in the form in which requests contain them. */
export function packed(data: string | Uint8Array): Bytes {
  if (typeof data === "string") {
    return data;
  }
  let binary = "";
  for (let i = 0; i < data.length; i += 0x8000) {
    // More arguments at a time would exceed the limits of engines.
    binary += String.fromCharCode(...data.subarray(i, i + 0x8000));
  }
  return { base64: btoa(binary) };
}
