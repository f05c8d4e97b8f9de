for how in ["spawn", "forkserver"]:
    with multiprocessing.get_context(how).Pool(1) as pool:
        print(how, pool.map(square, [3]))
