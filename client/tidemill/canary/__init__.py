"""A canary: it sends to each broker group through the ordinary client, all the time, and judges what comes back."""
