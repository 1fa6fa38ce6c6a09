"""What GPT-2 weighs and costs, how long collectives take, how intervals overlap; standard library alone."""
