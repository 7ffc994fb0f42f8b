// The AI SDK does all it does, through the proxy.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, isStepCount, Output, streamText, tool } from "ai";
import { z } from "zod";

const [url, user, picture, budget, question] = process.argv.slice(2);
const provider = createOpenAICompatible({
  name: "recollect",
  baseURL: url,
  apiKey: "sk-test",
  headers: { "X-Memory-User": user },
  supportsStructuredOutputs: true,
});
const model = provider("scripted");

async function ask(prompt) {
  return (await generateText({ model, prompt, maxRetries: 0 })).text;
}

async function streamed(prompt) {
  let said = "";
  for await (const piece of streamText({ model, prompt, maxRetries: 0 }).textStream) said += piece;
  return said;
}

async function tools() {
  const inputSchema = z.object({ city: z.string() });
  const weather = tool({ description: "How the weather is.", inputSchema, execute: async () => "sunny" });
  const prompt = "How is the weather?";
  const answer = await generateText({ model, prompt, tools: { weather }, stopWhen: isStepCount(3), maxRetries: 0 });
  return answer.text;
}

async function image() {
  const content = [
    { type: "text", text: "What is in this picture?" },
    { type: "image", image: picture },
  ];
  return (await generateText({ model, messages: [{ role: "user", content }], maxRetries: 0 })).text;
}

async function structured() {
  const output = Output.object({ schema: z.object({ name: z.string(), age: z.number() }) });
  return (await generateText({ model, output, prompt: "Ann is 30", maxRetries: 0 })).output;
}

async function error() {
  try {
    await ask("You go too fast");
  } catch (refused) {
    return APICallError.isInstance(refused) ? [refused.statusCode, refused.data.error.code] : [String(refused)];
  }
  return [];
}

await ask(budget);
console.log(
  JSON.stringify({
    chat: await ask("Hello"),
    stream: await streamed("Count"),
    tools: await tools(),
    image: await image(),
    structured: await structured(),
    error: await error(),
    recalled: await ask(question),
    recalled_streamed: await streamed(question),
  }),
);
