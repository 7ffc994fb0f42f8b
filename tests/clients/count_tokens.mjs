// The tokens of standard input by the vocabularies of OpenAI's models.
import { readFileSync } from "node:fs";
import { countTokens as cl100k } from "gpt-tokenizer/encoding/cl100k_base";
import { countTokens as o200k } from "gpt-tokenizer/encoding/o200k_base";

const text = readFileSync(0, "utf8");
console.log(JSON.stringify({ cl100k: cl100k(text), o200k: o200k(text) }));
