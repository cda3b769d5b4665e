/** The native module. */

import loaded from "../native.cjs";
import type { Native } from "./native-types.js";

export type * from "./native-types.js";

/** The functions and classes of the native module. */
export const native: Native = loaded as Native;
