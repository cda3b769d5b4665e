/** A chat model that says what a test wrote down, and remembers what it was told. */

import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage, type BaseMessage } from "@langchain/core/messages";
import type { ChatResult } from "@langchain/core/outputs";

/** A step of the script: tool calls, or the last words. */
export type Step = { name: string; args: Record<string, unknown> }[] | string;

/** Plays a script, whatever it is told; or asks a function what to say to the messages. */
export class ScriptedModel extends BaseChatModel {
  readonly heard: BaseMessage[][] = [];
  readonly offered: string[][] = [];
  #bound: string[] = [];
  #next = 0;
  readonly #say: (messages: BaseMessage[], turn: number) => Step | undefined;

  constructor(script: Step[] | ((messages: BaseMessage[]) => Step)) {
    super({});
    this.#say = typeof script === "function" ? script : (_, turn) => script[turn];
  }

  override _llmType(): string {
    return "scripted";
  }

  override bindTools(tools: { name: string }[]): this {
    this.#bound = tools.map((tool) => tool.name);
    return this;
  }

  override async _generate(messages: BaseMessage[]): Promise<ChatResult> {
    this.heard.push(messages);
    this.offered.push(this.#bound);
    const step = this.#say(messages, this.#next++) ?? "the script has ended";
    const message =
      typeof step === "string"
        ? new AIMessage(step)
        : new AIMessage({
            content: "",
            tool_calls: step.map((call, index) => ({ ...call, id: `call-${this.#next}-${index}`, type: "tool_call" })),
          });
    return { generations: [{ text: typeof step === "string" ? step : "", message }] };
  }
}

/** The text of a message. */
export function content(message: BaseMessage | undefined): string {
  return message?.text ?? "";
}

/** A model that writes a file if it is asked to, and says "done". */
export function writer(): ScriptedModel {
  return new ScriptedModel((messages) => {
    const path = /^Write .* to (\S+)$/.exec(content(messages.at(-1)))?.[1];
    return path === undefined ? "done" : [{ name: "write_file", args: { file_path: path, content: "A haiku." } }];
  });
}
