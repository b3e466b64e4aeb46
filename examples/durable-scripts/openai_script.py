"""Plans a delivery with two tools, over the openai SDK.

    pip install -r requirements.txt
    longhaul run --key delivery-1 -- python openai_script.py
"""

import json
import os

from openai import OpenAI

MODEL = os.environ.get("MODEL", "gpt-5-mini")


def stock(product: str) -> str:
    return json.dumps({"product": product, "pieces": 12, "warehouse": "Hamburg"})


def delivery_days(warehouse: str, city: str) -> str:
    return json.dumps({"from": warehouse, "to": city, "days": 3})


FUNCTIONS = {"stock": stock, "delivery_days": delivery_days}


def tool(name: str, description: str, *parameters: str) -> dict:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {parameter: {"type": "string"} for parameter in parameters},
                "required": list(parameters),
                "additionalProperties": False,
            },
        },
    }


TOOLS = [
    tool("stock", "Pieces of a product and the warehouse that has them.", "product"),
    tool("delivery_days", "Days of a delivery from a warehouse to a city.", "warehouse", "city"),
]


def main() -> None:
    client = OpenAI()
    messages: list = [
        {"role": "system", "content": "Use the tools. Answer in one sentence."},
        {"role": "user", "content": "When can ten desk lamps be in Lyon?"},
    ]
    for _ in range(10):
        reply = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0].message
        messages.append(reply.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}))
        if not reply.tool_calls:
            print(reply.content)
            return
        for call in reply.tool_calls:
            print(f"{call.function.name} {call.function.arguments}")
            result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    raise SystemExit("the model asked for tools ten times")


if __name__ == "__main__":
    main()
