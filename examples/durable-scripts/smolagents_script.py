"""Plans a delivery with two tools, over smolagents.

    pip install -r requirements.txt
    longhaul run --key delivery-5 -- python smolagents_script.py
"""

import json
import os

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def stock(product: str) -> str:
    """Pieces of a product and the warehouse that has them.

    Args:
        product: Name of the product.
    """
    return json.dumps({"product": product, "pieces": 12, "warehouse": "Hamburg"})


@tool
def delivery_days(warehouse: str, city: str) -> str:
    """Days of a delivery from a warehouse to a city.

    Args:
        warehouse: City of the warehouse.
        city: City of the customer.
    """
    return json.dumps({"from": warehouse, "to": city, "days": 3})


def main() -> None:
    model = OpenAIModel(model_id=os.environ.get("MODEL", "gpt-5-mini"))
    agent = ToolCallingAgent(tools=[stock, delivery_days], model=model, verbosity_level=0)
    print(agent.run("When can ten desk lamps be in Lyon? Answer in one sentence."))


if __name__ == "__main__":
    main()
