"""Files: written atomically, verified when read, without pickle; locks; where results come from."""
