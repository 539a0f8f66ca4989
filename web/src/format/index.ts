export * from "./amount";
export * from "./text";
export * from "./time";
