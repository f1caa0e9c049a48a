"""Raw public data to RecBole atomic files: readers, duplicates, filters, statistics, an atomic writer, a catalogue."""
