"""Plans a delivery with two tools, over the OpenAI Agents SDK.

    pip install -r requirements.txt
    longhaul run --key delivery-2 -- python agents_script.py
"""

import json
import os

from agents import Agent, Runner, function_tool, set_tracing_disabled

# The SDK sends traces to OpenAI under the same key otherwise.
set_tracing_disabled(True)


@function_tool
def stock(product: str) -> str:
    """Pieces of a product and the warehouse that has them."""
    return json.dumps({"product": product, "pieces": 12, "warehouse": "Hamburg"})


@function_tool
def delivery_days(warehouse: str, city: str) -> str:
    """Days of a delivery from a warehouse to a city."""
    return json.dumps({"from": warehouse, "to": city, "days": 3})


def main() -> None:
    agent = Agent(
        name="planner",
        instructions="Use the tools. Answer in one sentence.",
        model=os.environ.get("MODEL", "gpt-5-mini"),
        tools=[stock, delivery_days],
    )
    print(Runner.run_sync(agent, "When can ten desk lamps be in Lyon?").final_output)


if __name__ == "__main__":
    main()
