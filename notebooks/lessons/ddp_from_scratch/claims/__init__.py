"""What a report claims about naive, flat, overlapped and bucketed gradients of XL on two GPUs."""
