"""Class names of the datasets whose .npy arrays do not hold them. Classes of other datasets are named by numbers.

Those of TinyImageNet are ImageNet's names, in the order of its sorted WordNet ids.
"""

_NAMES = {
    "cifar10": "airplane automobile bird cat deer dog frog horse ship truck",
    "cifar100": """
        apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
        castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
        elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
        man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
        pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
        skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
        tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """,
    "tinyimagenet": """
        goldfish European_fire_salamander bullfrog tailed_frog American_alligator boa_constrictor trilobite scorpion
        black_widow tarantula centipede goose koala jellyfish brain_coral snail slug sea_slug American_lobster
        spiny_lobster black_stork king_penguin albatross dugong Chihuahua Yorkshire_terrier golden_retriever
        Labrador_retriever German_shepherd standard_poodle tabby Persian_cat Egyptian_cat cougar lion brown_bear
        ladybug fly bee grasshopper walking_stick cockroach mantis dragonfly monarch sulphur_butterfly sea_cucumber
        guinea_pig hog ox bison bighorn gazelle Arabian_camel orangutan chimpanzee baboon African_elephant
        lesser_panda abacus academic_gown altar apron backpack bannister barbershop barn barrel basketball bathtub
        beach_wagon beacon beaker beer_bottle bikini binoculars birdhouse bow_tie brass broom bucket bullet_train
        butcher_shop candle cannon cardigan cash_machine CD_player chain chest Christmas_stocking cliff_dwelling
        computer_keyboard confectionery convertible crane dam desk dining_table drumstick dumbbell flagpole fountain
        freight_car frying_pan fur_coat gasmask go-kart gondola hourglass iPod jinrikisha kimono lampshade lawn_mower
        lifeboat limousine magnetic_compass maypole military_uniform miniskirt moving_van nail neck_brace obelisk oboe
        organ parking_meter pay-phone picket_fence pill_bottle plunger pole police_van poncho pop_bottle
        potter's_wheel projectile punching_bag reel refrigerator remote_control rocking_chair rugby_ball sandal
        school_bus scoreboard sewing_machine snorkel sock sombrero space_heater spider_web sports_car
        steel_arch_bridge stopwatch sunglasses suspension_bridge swimming_trunks syringe teapot teddy thatch torch
        tractor triumphal_arch trolleybus turnstile umbrella vestment viaduct volleyball water_jug water_tower wok
        wooden_spoon comic_book plate guacamole ice_cream ice_lolly pretzel mashed_potato cauliflower bell_pepper
        mushroom orange lemon banana pomegranate meat_loaf pizza potpie espresso alp cliff coral_reef lakeside
        seashore acorn
    """,
}
CLASSES = {dataset: tuple(names.split()) for dataset, names in _NAMES.items()}
