declare const native: unknown;
export = native;
