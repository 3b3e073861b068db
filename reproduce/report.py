def publish(experiment, place, budget, console): pass
