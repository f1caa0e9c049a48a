"""The models: encoder, geometry and loss in one, and the linear models."""

_NAMES = {
    "neural": "SASRecBCE SASRecCE HSASRec HSASRecCE gSASRec eSASRec SASRecBCEPlus SASRecSampledCE SASRecSCE SASRecRECE "
    "HSASRecSCE HSTU FuXi GRU4RecCE HGRU4Rec FMLPRec FMLPRecCE BSARec DualRec DualSASRec DualGRU4Rec DualFMLPRec",
    "easer": "EASER",
    "itemknn": "ItemKNN",
    "memory": "FMLPRecMemory",
    "pop": "Pop",
    "puresvd": "PureSVDN",
}
# the file of each model by its name
MODULES = {name: file for file, names in _NAMES.items() for name in names.split()}
