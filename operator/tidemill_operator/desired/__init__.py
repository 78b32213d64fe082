"""What a spec wants to be there: manifests, one module a kind. Pure."""
