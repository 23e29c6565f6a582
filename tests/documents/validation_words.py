"""What the validation page says of folders, cases and differences, a row a line."""

# ruff: noqa: E501  # tables of sentences read best with a sentence a line

from __future__ import annotations

# Folder of the cases -> heading, what is compared.
FOLDERS = {
    "accelforge": (
        "AccelForge 1.0.467",
        "Tiles, reads and writes of every tensor at every level, occupancy, energy and latency. Each number is compared with an independent walk of the mapping, and with the tool's where that follows its own rules.",
    ),
    "timeloop": (
        "Timeloop and its LoopTree model",
        "Reads, fills, updates and cycles of single Einsums; of fused mappings the relations at every loop index.",
    ),
    "skislope": (
        "Ski slopes",
        "Least traffic for every buffer capacity, point by point, by an independent search of all tilings.",
    ),
    "mapper": (
        "Mappers",
        "Optima that the mappers of AccelForge and Timeloop found, checked against exhaustive search: no mapping of ours may be worse, and none that they found may count otherwise with us.",
    ),
    "teaal": (
        "Sparse tensors: TeAAL and Tensaurus",
        "Executions, partitions, formats, density models and traffic, by independent programs; and the figures that the papers print.",
    ),
    "tiling": (
        "Tilings",
        "Tiles and kernels of Tiler-Swift's tilers, of guillotine cuts and of products, by independent programs.",
    ),
}

# Start of a case's name -> why the tool's figure is another.
REASONS = {
    "accelforge/07": "Iterations that do not exist are charged: the tile that does not divide is padded to a full one.",
    "accelforge/14": "Idle units of the last step are charged, and count as unused though every unit works.",
    "accelforge/27": "Elements that the stride steps over are counted as data.",
    "accelforge/37": "The consumer goes to the copy off chip although the nearest one is on chip.",
    "accelforge/38": "The tile is the product of the extents of its ranks, although only a diagonal is touched.",
    "mapper/gpt3_6.7b_2048_glb128MiB": "A tile that several Einsums fetch together is booked to each of them by the tool; its peak has source and destination of a copy once, ours has both.",
    "teaal/format_footprints": "Their tensors are not at hand: bits follow from the counts of the case.",
    "micro23_reference": "A defect of the artifact's table, told here and not compared.",
    "tensaurus_paper_facts": "Bars of a chart, read off; baselines, matrices and tensors that were not published cannot be computed.",
    "tilerswift_reproduction": "Bars of a chart, read off; and defects of the program behind the figures: [claims beside corrected figures](tiling/tiler_swift.md).",
}

ABOUT = {
    "conv_1d_halo": "a convolution in one dimension with a halo, two levels",
    "conv_res3_3L": "a layer of ResNet, three levels",
    "conv_sp_3L": "a convolution over a spatial fanout, three levels",
    "mm_2L_Astat": "a matmul, A stationary",
    "mm_2L_bypassB": "a matmul, B bypasses the buffer",
    "mm_2L_outstat": "a matmul, output stationary",
    "mm_3L_seq": "a matmul, three levels",
    "conv1d_fused_p4": "two convolutions in one dimension fused in tiles of 4",
    "conv2d_fused_p4": "two convolutions fused in bands of 4 rows",
    "conv2d_fused_p4q4_rowret": "two convolutions fused in tiles of 4 x 4, rows retained",
    "mm_fused_m4": "two matmuls fused over m",
    "mm_fused_n8": "two matmuls fused over the shared rank",
    "chain_32_16_64_16": "two matmuls, unfused and fused",
    "gpt_ffn_2048_4096_16384_4096": "the feed-forward pair of a GPT, unfused and fused",
    "single_mm_1024_1024_1024": "one matmul, divisors",
    "single_mm_64_64_64": "one matmul, divisors",
    "single_mm_96_60_80": "one matmul of uneven extents, divisors and all sizes",
    "density_uniform": "occupancies of tiles of uniform data",
    "format_footprints": "bits of tensors in formats",
    "micro23_reference": "identities and errors of the figures published with TeAAL",
    "partitioning": "parts of fibers by shape and by occupancy",
    "teaal_arch_traffic": "traffic and time of TeAAL specs with architecture and bindings",
    "tensaurus_expectation_mc": "expected work and balance, against random data",
    "tensaurus_mttkrp": "MTTKRP as Tensaurus does it",
    "tensaurus_paper_facts": "the figures that the paper prints",
    "tensaurus_spmm": "SpMM as Tensaurus does it",
    "tensaurus_spmm_dram": "SpMM, traffic off chip",
    "tensaurus_spmv": "SpMV as Tensaurus does it",
    "tensaurus_ttmc": "TTMc as Tensaurus does it",
    "uniform_slice_loads": "load balance of slices",
    "elementwise_reference": "element-wise tilings, tile by tile",
    "guillotine_optimum": "fewest tiles of guillotine cuts on a grid",
    "matmul_reference": "products in tiles: fetches, words, cycles",
    "tilerswift_reproduction": "Tiler-Swift's claims and charts",
}

# Claims about other programs -> why there is no figure of ours.
CLAIMS = {
    "LoopTree (TCASAI 2024): at most 4 % error; up to 10 times less buffer": "of its model against designs whose mappings are not printed; our counts have no error against a walk",
    "FFM (2026), TCM: how much faster their search is, how much better its mappings": "about other programs; races with AccelForge's mapper are in `make bench`, and its optima are cases below",
    "TENET (2021): 37.4 % and 51.4 % less latency than data-centric notation": "against another notation, of dataflows that are not printed whole",
    "CoSA, DeFiNES: speed of search, better solutions": "about other programs and machines",
}
