"""Reference solutions of the exercises of lab 08, as a student would write them."""


def tile_work(row, column, tile_queries, tile_keys):
    first_query, first_key = row * tile_queries, column * tile_keys
    last_query, last_key = first_query + tile_queries - 1, first_key + tile_keys - 1
    if last_key <= first_query:
        return "full"
    if first_key > last_query:
        return "skip"
    return "mask"
