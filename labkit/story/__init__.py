"""Words, units and names, and the sentences that several labs say."""
