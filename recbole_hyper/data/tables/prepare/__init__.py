"""Raw public data to RecBole atomic files: readers, duplicates, filters, statistics, a writer, public data sets."""
