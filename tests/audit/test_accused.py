"""Lives whose records an earlier judge accused, although the scheduler was right: found by
`tests.simulation.views`, and lived again here, in every view."""

from __future__ import annotations

from random import Random

import pytest

from cronpoll.core import events as e
from tests.simulation.plan import plan_of
from tests.simulation.views import View, again, begun_at, between_batches, recorded

LIVES = {
    "a task that was started after another gets windows of its own, over periods that the other had": (
        "eNq1U02PmzAU_CvIx4qkBkrYcFvtuVIP20tXUfSwTbACNvJH023Ef-9zkiZm2416qbnYfmPPeOZxJNaBcaQmOc"
        "1XC1os8ofnvKjLhzqrvpGU_NRKYPULMNlK9vFxlIC7DuzekvrlSBQMoc5wkxmtcIqzRnTwXWpvAuYlp0taVFna"
        "Qm9FioS-abRRZJPeK1XzEhfQks0mJVptWQdqF1iNsMIFPmB73bakzpf0BOW9DLJzXEHrhEEskGkTGMR4Fn7ZL9"
        "fnI4Ijxvb6kHBp93gnDNorNKaa0it4RZfru-BPNEZnyzIrrnhmwHYX70h9dQ5uztFFuU4-nL__7KIRzrxuuejh"
        "ldRZWI8CnODbDvlQSiuNDc7-ze0BfmzBOTGMDpWV9-yfbtaUsTVz150eE-MVXn3tpgibI_jmutKuk2r3DnYekH"
        "AJ6zWLA1oUsYyc0llEKN11NoKv3oDpPM1EqgQSBn0fbNFGvOmAKn6lt6NQPL48e88RwaWLX_hH07B_bJrf8Tvj"
        "Z42BHeDkIC4_99fnJzwpFQoxfnQnCdCA4jpkYkeDiQbyg8StQ5gNmp9696QdZXsDTmr1GUmLFQ0Dk8d_wxnZ-F"
        "CJtCttBugxNQwoUB0nHKEltd91pA5Sp1-MiWl4"
    ),
    "who waits for a slot that a start had taken which the disk would not write": (
        "eNqdksFu2zAMhl8l0HGwW8VOW8C33XYoetplKwKDkelaiC0KFNWuK_Luo5ItWFAUGAZfDPIn-f0U30wSYDGdaW"
        "xzW69t3Wy-Nk23sZ1tv5vK_KSAmv28IHsH1w_40n8j3mtGIO2T6R7fTIClaECDjinor61au_p0-jS6wwmePWUu"
        "-sfG2ivb3q2rEeaE2mhihMFsq3eZAWG8iAtnDUcmhymZ7bYyjBFBcOgnba-TR89JCgiIm_ocNeTHmnOodzgSo6"
        "Z8EGTOUasK9Q7CoNCVWeBHDyK4RFHO9jh-mH3x39hDdfbp_tnnhRlHTFlKu8ItfsE_u81JGGYP1_fEQ_-FXgrl"
        "R8Yo9G6C8FQqGRP-p1lHwWVmDO712CjO4Iq-cCmm6W5v3m3koNxJMJ5eHUbtbLq7q5v1cVfHAQJ7DKsBk2MfhX"
        "QRZXG_pRtb3vGsVfaVm8mVY4KFctCpdWv_Krjs_ZG-XAHlp8l0p_Mo1Gd7qlkXaor92Zoi4DPya7_4kAVPdYdf"
        "DT35bw=="
    ),
    "a log that was rotated during a run of a name that leaves and comes back": (
        "eNqlVE1vm0AQ_SvWHiMcL2CMza2RcqrUUy9tZKEBhnpl2EXLktSN_N87aywMOLhWai7WzM7He_Nm3lltQBsWMY"
        "97qzn35976u-dHwTpyw5_MYX-URPI-N1pVuHhCXQhJZgP1vmbRyzuTUNoHQMZUK0l_uePz2UP7kTXBHbwK1Wj7"
        "_oU_cj90nRyKGilCadUYQSW2zi2XxyedW4dpNPoQZ1jAgUXLgLoTJZ4b_1ILWHxVxR6MbVFjhWAwi3fUELlzoW"
        "tD9hJ-x2AMlpWhNn2HZQhZYQtEHj86Hcz0AvMKWtek0Q2eMuQ9WK3xPsBjTHwIqUQtUlh8w7f4h9J725KSaaM1"
        "yvRgQSmdiIy1QZSTRatgDJEMCaR7leeE8JEKQG7QMpKwI5WvDVbtfM92l3NuMWFGbzAT5iwCFn0kgdBZO5tJDY"
        "yIGnCy5JPO7YCFsSInKLgx2BXnRzvaM8Kwg1c3dYXSRvemDqVqpLFysL9eXLC5BBpVXaKSa4qSC0UPd65IK6Ox"
        "IlzKAybdxU1FuUQ-142cJ0iwkfIJSZ3ppjKnriABmam7ObpSxnAVOiKCPgkDeXyavzei5tcsLVS670XMN8sVX5"
        "8KlBbfqVgvgdcvTROYERfsvwsMSrhdhgLhFWd2qabQ_3M5bt7H8MMb4k0vTHj3FXE_sz-3T8hAGu3dUFXcxfj8"
        "-BcNnfy1"
    ),
    "the clock returns to a time before an edit, in which periods are handled already": (
        "eNq1Vl9v6yYU_yoWj5Pbgt2kjd-qvUza3bSHu4etiiyMSYxigwW4aVblu-_gOCl2bN_euy55SYADnN-fc3hDxl"
        "JtUYIiTMgNiW6i1Vf8mGCcxPhvFKJ_lOQw-9QYq2kp6N0XpfP0F7XnMGmp2RmUPL8hSSu3jMIg00rCTxzcBySM"
        "VsFPAYHRjBf0RahGu_XP9xjjWxw_kNDqhoco53SD1uFzdD0c1Foxbgxar0OkudWHNOclPaDkfhEiJVNWULl1h2"
        "tuuIWjKvqaUmt5VVs4DBZllO3UZoOS6Ba3m-alcFktMfw1jam5zFFyOtLUGuZR8ob2QuZq735VKnf7Z3yjtEs7"
        "bzS1QsnfYHvyiNvPEYYFYCSyxk25sA4T_loDhtIKWiJYZThvtze0dLC_ujH6okQ7WHQAAXBhvD4ej-Flm-yD0D"
        "50CG5oaSCfC3rhcIYpreCuAATMTU5dgY4daJrXnFqep-7CcKON0MZBz6hlRdrUMCT5C9dXbMR9No6wvbG8PomI"
        "biyEtEfcLkjsqHJYQdrUFEHG7Z5zCVvSSjUSwHuE3R0jCXE4ddERbrXVD-606rHSUyqJQhIDmvD9Fp7GNlmmtB"
        "wB9H1qTKlWVLwz059ff0bTGLqFgD7IczGC3ueqN_7v2lWyPLixMz0AGYkjHMLW6_WctkNUKgaUoHbrM6ekvdEY"
        "sVey4LlweHn-GHDsWeaK1j51tmhxm1C7R92TgRL4qyp31DoFjZUfIeG6uqlte0maUSBCzvNKPCzCc74g0aOX_m"
        "LlibpSL9wzQtRf54NEPYiYH4J70ELU6hIjVXACxHgBPhUr3A8AUdrCXxxPX6hjbc6O-GNWfG8aH61rp4ghyXic"
        "x5FaNkXtFZv9jjPjyhNGfVMu5z1pdnz_BQpHz5DQnC3fQjIITLgDR4aeSY_HORtJZQsht76TZqg2VtX_TzUd9P"
        "4ejQ8f7k_kOyrtgDavCi1m3LGHPLcBaw37HnFDHpZLTJZ-8epaZaaU29-lNdOnOmA9qw4wZj-I8fQL4GIHv8BV"
        "XAtG737n-_QvpV2KTEnWaM0lO7T2qEvK-Jjq53QOhEGb-kyh51QMdD77kPK4HesugypVKmODc6I_Uquinpg9Di"
        "bJmZiYF_gflImNYHdPtZjqRyN1rM8oLUvg6jvezRH-dK6l0tXgjTHJ9AG1fJ44jNwTEg7cFuc3kEvjkqDrdGHr"
        "rfTSf-H2DodDWgnZgLxOzvwXPUAaDw=="
    ),
    "retention begins a journal behind a restart by another clock, during a suspension with an end": (
        "eNqdVU2PmzAQ_SuRjyuya1hCNtxWvVc9bA9tFCFjhgUl2Mg23aYr_nvHCUkMgTSqkgOazzdvHsMn0YYpQ2IS0C"
        "Ca0xD_b34YBzSm9CfxyB8pAL2vFaiSs6ev8JH8kGqLHsP0VpN4_UkEq2xMikaupMBHfEqhYL9K2Sgbsw4ofaTP"
        "S9_L2U4DxkklG1Ni7Y23XnY-o5qhK5hybTyiwKh9ksGO7UkcUkoRU1lBh_j72xdEIUXCCyberUWBBoO2UhhQqq"
        "kNZGhlKRMZgj4mY3kSRwuEz_hW5jmJg0esmwHLdrZvHNk2utE1CMw-wmI5FrSlSIuwtIH6yEtnX6xsgUMzbWSN"
        "nRzCWCUbgT0XiL_1zjnLcwq2NoV2IiMnzJ8OC50wB8HNuOhSD8lqEKSDdbRtfyDeG8gjlVRo9t3Mw5q6ZMhK0w"
        "mJxGcZsYuMlt6Lt5o9HH9Xmropm3t144-IhjPDi6Sp0VDmc9WIeQq5HWVaO1wK3igFgu8P5NU7xmGoqYr9Tpgx"
        "UNUGB1jcllU7vheumC4cmi2h9Ex16GoocKg-lb4krvqCC93FXInkeaosrn-GBI2L4wO3-D7jO8m3Tq35Kozoiw"
        "P6NIKCVErLzGH8sYKdYBy1DbTDb5yg5d0XCMfPXet1xj-vzzfGy7zkT691ySbO0H9Ixh_eJefyTGyoT1l6TZlz"
        "tR8mXzU73zR7Qd93oi-4m77-SzjyrUF2UJKQJQUiwpC8VNqONaCnbTftXwSzIR0="
    ),
    "an edit resets at a restart: something stayed owed from a run, and later minutes were missed": (
        "eNqlVE1v2zAM_SuBjoOS2kmcrr4Vw44bdugOWxAYtEQngm3JkORmWZD_PspJW7dN84E5BzuPpEg-PmrLnAfrWc"
        "rG0Xg2jONhFD9E03QSp8ndb8bZX6ORrD9AqEKJm_tGAaEeXOlYOt8yDXWw5wQKazR93vLP_G7waf8jOMcVPCrT"
        "2hAwH0fRKJrcxryAyiFnEqEYNNYIdI4tFpxZ9HaTSaxgw9JpFEWUTdV4qOPnwxcWfBoEjzJb0bGEFso6T7jRmV"
        "iBXgZPiw4DJsCLVdY2BGl8REtQDX8y8B7rxlNNMZUIojRFwdLxiNJVRpTkXbEdleM8NvtOofAUTbSMkngSCkdJ"
        "XiiVPxDC0mc64IWOhE-SD9m4PZDhbUtc-JVFkEdYSK7goNevKoa21cMcC2ORTEpTB7ZtfFc55KAllUghRovWWt"
        "Ri0xHXVCCCf8hpWhLHLDlCmmu6aqnptaKD1uGrNrJTw1NG2VrwyuhvFBLt6L9y3qq8DViPLlfi-ivYasPIx3XE"
        "bol5isVlKGmNWO6NRtObjF2-eczHfMKnPFns6OHPMwoi6w9JgBZYUT2HfIL1nGfxK1_nTdP35Axq02piIenEWI"
        "fOSJi9E4JKg3COnpC_V0d-pTouW5XXIrmv0SoBN99xnf0ytvz_rblMPTT4XMnzS3ZCPWCJb3lePce1IkEFqez6"
        "e3zBDMcnRijej1Bcet9dNcP4yJ6fmc7bHT-xs8nHlLwVc38hPJSoBxKdsKrxhtp6iY3DFUnjWq5Yur_Dglg2Wa"
        "1063GP7f4BYqQFmg=="
    ),
    "a log in which the end of a suspension never came, before the clock was set back": (
        "eNqVVE1vm0AQ_SvWHivsADZJ4NZWPVbqIb00stCyjM3KsIv2I45r-b93BhMbXNdJ7QvMzNudefMee2YdN45lLA"
        "6jaBrF0zh9Ch-zMMzm4S8WsN9aAWa_eaNbuPsCppYKw47bjWXZ854p3lABx6AwWuHjPJzEk0_0x1gBFX-R2huq"
        "fo7DWTh_iAJnPAR4tS8KbRRbBpjpUyteW8y1Rguw9pi6nlkGzIAzu7yEmu9YtkiwL9lA3_IPLuRKirvPreya40"
        "5UuW8xo-AFDDsWa4_D3yOy4a85dw6a1mGrEXbOxUavViyLZyH22hrgJcv2bCtVqbf01OiyG33luuNKb7iTWn1H"
        "_Pw-pN8Bo9I6IwtPGQRhxAJ0B2GcO1hj56zkst7hEZbXtItXdsC6WosNvtTsEJxoLs40_0Xuww0GxymhDc4tkS"
        "Yi8d-caZWLiqs1pQxYcHS7VsIbA0pQ47yukYv3qDxNEvRkkV4OS1IAtEcZ9fGUWCO-y44kRFo3aWsuALEDDhpt"
        "8DEiZnrkIkzSWXoCWm9bUOUYxRvtFTU5BCI5I6Tx6owSbFCZXlRyNyw8H58eVz9o7dZUb6gEa64NhleekcJwW_"
        "X-Iw39l_sePmikaKSJn09fGRW0gGot8wpPw-hKGuuu22qsEAT2g45lkVw6rER_1aRJ3Mhtv6F4u80ODXfFam_k"
        "KG0aTi665rwtwGZovR1a7zBcynWthe-o7UIOY7mhFpJofgajhSbY-2aAWdzUj3W6nYx0WtzS6ce9gLBhZ1uU1H"
        "oiOvueEdM4SeOBVrvuSCGF1rRZ-riTuXFN6-r4GnQt56evBJaTWHZ5I5V30GP-AFm7CZc="
    ),
    "windows over twelve years that a clock skipped, counted one by one": (
        "eNqVU02P2jAQ_SuRj5V363xBya3nqreeihBynAEiHBv5A5ai_PeOw24wy4dawcEavzcz7_nlRKzjxpGKZCybvL"
        "AC_7_SospYxdhvQskfrQBvv9uWf_2h5ZY7jlXH7daSan4iinfhXmBRGK3wiKcaNnzfam8CZj5lryyfpnTFpQWK"
        "A31da6PIgs4Lxq4vd0YLsJYsFpQYcOa4bEDyI6lSHNp2cH8doZXwxoASiCRcSn3Aasffltw56HYO98gpaYA3sg"
        "0NJoxRIrXYIlwilK8cGDzXpF-EDWF3VvdeL2evLNChQczKS5k0rd0GXqe9QvcynKYNNs4Y6-nIm0a0nT6ASaRG"
        "cWf_SDW6xy_usZdylnw5_x466YyHQc4qeWbYfVuCjdrj0pPys0dYsDuDLoXdDq1qkICnTjfDlgbFNtih8Ya7Vq"
        "ufSEG5BM1wpq19qEWqlDYdlwQBdrDghMYiEdZhmwPAVh6xmeUyxO8t4LTCEuKGufOUZjSnBS0Xfd9_GJxG9g7p"
        "KdN89Bia1mHL9_n1rdH1k5g-ziL9L-OLMghZig1X6zDTgAV3E9KVNnXbPH-O_BJMTvpIeBrl6oBy1okYwnwJZD"
        "79VuQYRjb6dhXMdNA69hBcCZAX5wSJsRl7nY1Q49UDXIZfSYQD6xFzH1pcj-_0HqLdiyvkVVeLEf787RXs4bLC"
        "cLtJWpXwRGD8I9Is4kwmEeXe153H4Nh77mKBF0J5a3Yc039bK7t-osAhH6-JmkPstF9vSHUOpXV6txzDhETYA4"
        "aya5V3cAb1fwFtedb4"
    ),
    "a log in which a suspension may have ended with the process, and a retry with it": (
        "eNqFT81qwzAMfpWg43CLneCk83Wv0F1WevAatQlNrGDLGyzk3adAYeuhFF30Sd-PNENiHxkclLqsN7ralLt9WT"
        "m7c6b5AAU_FFC27_s3AezTNYE7HJXIcFrbGfyZMYKzr1trKgUtYiuCNNB3gW3PNxm4GYIfVy8vo1OkIO1LcSsZ"
        "fWLnv3rKcbU9NHqrq8aosx8SCp8iZe7llqOEcz-iQHC1XRT4kXIQYLRWMFKUDKv1oh6eltOEoYV_DJHqO04g7v"
        "pwgecuf_m1ecweKHExDf6EsMgD8sylA8cx4_ILd4hz0w=="
    ),
    "a run that succeeded as the machine woke, when its timeout was long over": (
        "eNqlUcFuwyAM_RXk40QrSJp05bpf6C6rqsklbImaQAVkmlbl32emqiWausvggs17tt_zGUJEH0FBIYp6IeVCyK"
        "1YqVKqavMCHL6cNfT7vH2iIGI4BlC7PSeaOaXnGfAtGg8EX1ay5NAY0xAhRHcihsUh0Q8XMqhzntLeWXo-sMul"
        "1MG0-NG50afiu7VYinIt-Rv2wRDeeTfGjiba813xx999Ho0eu8FQCKquJg44uNFSUImJX8VIQXI2VzHWsdh6g0"
        "2AG0Fm-LrO0NpjaH8Lxv8J3t-bdT3z_ac56yxDprHvIRclH7Mp04KYH22OKAS1vyF6Y065YJHOzKUZPhXLNn7f"
        "zmAi073Tx6z4KofPFDUGY5sbX060RPLlvQUV_Ug2Dfj5qp3Vo_cmIYrpGzRP2tk="
    ),
    "a log in which a success, and what it made due, was not durable when the process died": (
        "eNqNU02P2jAQ_SvIx1UA811y20OlHtqqh15ahKKJMwGLxI7GNixF_PeOA7sQbVclySGa9-brPfsknAfyIhVjOZ73"
        "5ZS_n6NpOpaplL9FIv5Yg4z-AKVLrYbPjQaOenA7J9LVSRioIx6Diqzh31kymfWeLi9Hc9zCXttAkb-aSikHcrIY"
        "JZ4Cco4lG7zmHutkNb5CJVSOMb8lhCICi49y1okg9HTMCqzgKNIRZ-kar0M_10hawfA7HrJflnYishsEj0W25YmY"
        "UmpyPs4OXm2z0HDI4B6JQ9p4JAoNs-OCOZiC90tEDS8ZeI91413b0TXtnOlJHDRzDvGvtkUrS-nbWkUg8NqabzHj"
        "E2sgzxzUzpPOQwRizlVKt8PDZ6DqKJjjENvKzOSxN7yiKEAzxhBU0bcXcWaeNdmrkQVgzQXPyVvF_GaO7M-WH5qz"
        "6OrfkFXoXKtyd-kJZ4La2bIU6Xgg71qpW6t_l19O3pVPVl3g5vu4Czgf8tySee_7dNY1PkS9Kg3Dr5aK7Is9oGg1"
        "Ulswm8ggdNj6bo0KRGhUlLa0lOtCXGrxGRPpnAtfTIwyntdxCGwuR_8an48Gks1sjRKVdb7XVKBiwztN4oW58_hO"
        "pqdH7SgQyt69Jx0F5ENnW5d9CqafI2-K4r-28jFmWjqKBr9uOx8s5d2zfFvdww5Nr0CnSDfe8g4sXW2D8Y9WqBD2"
        "2Iu6R6H5km-2Ir3c-Xgnj1mtTfB4iZ3_AmP7fvY="
    ),
    "a log that begins with a process that finds its clock far behind": (
        "eNqVU8Fu2zAM_ZVCx8LZFLuOCx0H7LjbTgsCg7HoRogsGRLVLAv876OSoHG2bsPgi0Q-PpLvyScRCQIJJUpZrh"
        "ayWpTPX8tK1c9q2XwThfjhHXL2cwp-xI-fMFjjOEwQ91Go9Uk4GDIAONgF7_hYF1X98Hj5OLrFHbwan0LGr0v5"
        "QVbNsujBRuQSH3wiwz02xbr5S-5JyvusRujFZlOIgBSOrUYLR6Fkvo8IhLrdcU8epzchUp4OqNu1aeSQ6Rchuc"
        "UWex8wp7zrUgjoOqbIBBa6HCczII8g1KouxADfWyDCYSTepD5PoG0eT5Vy4kEi4XjRBHpCbt1kDGqmZCjtIjPC"
        "4JPLhFPxDuzAAr48dNZ3-xm2aZqV5MWGPKxashCz4jJnruUR6bfi-h5-6xXJj4y72re9eirUaR66Ovr4Rztvtl"
        "BI__Rslt38hyFgrT-IXx2o7h1g_cfA97zBwTjNFXwavD6_Tu7rNFPoFICMd18yAat6VkdoEymYbcoZruJIPIt0"
        "YpUYjy95igPi3h6ZI4LNP8xRTNN0E7q8F3r5JvTgX3FmyNO7bvD24vKG_Ni-PTs5_QTyLyPw"
    ),
    "a log that tells the end of a run by hand, which the disk never had, beside a pending retry": (
        "eNqdUk1vnDAQ_SvIx8ohhu1C4NZWueeQXrpaoVnvsFgBG_kjbRrlv3cMW8KmSlUVX_DMvHnvzfiZOQ_Ws5rlIi"
        "-uRH6Vl_eZqIWoP2bfGGc_jUbKfr3_QhcP7sGxevfMNAwxfKCgtEbTb8lveJV8mA-FD9jBozLBRsBOpGJTZryF"
        "3iFnR4Q2Ga2R6Bzb7zmz6O1Tc8QenlgtiEgNeGa-DdaMeP0Zba80m1MmkOJiy9kAPxrwHofREw0FDiAfTNuyOk"
        "_FC190yledf0jLRRRXbX6LW3TxXflOZn-h8A6kapW8_jQqoO5GN7IDfYopiw595DZaBmtRS_LHoO_N97dW1sqn"
        "CR3JL_UoBF2h9Wineb8Qt_M4zms4x4sircTqq2IDPEYBIc5smUIcyRmTiW2V_kvh_zQvZw9TlbTgukTpBBJJzg"
        "kBgwmabGe0QGMJnK3psnSbbRa0NonvLE3DrYD5qp5cXNb7TunTWsyk_qJIgpbY_1Xwq7HDinhLVT22vpnW5m3A"
        "uA9rwqmbr_OTXNY9m3TejM2ybGqBj0jPfVA6eDy3-QVjuBTe"
    ),
    "a machine that woke with a full disk": (
        "eNqVkstu20AMRX_F4LIYKSPJD1i77roouuomMQyBkqhI0GMMaiZOGvjfy_GrsoG0KbQZzSXBey7nHUaLbCGFWM"
        "fLINJBPP8Zx-lcpzp5AgW_zECifnWjZewafPhuuMy-mT2JaHFsR0g37zBg78tyuSzYDHLUKtGzL6dPbnOq8aUx"
        "jn39Roc6WUWqwm4kJRZcnhseYKs28Vmy7EQpCSvYbhUwWX7LSurwDVItk5ueLtZ64qbAhx-0zx4Nt3BSjROq5U"
        "JBj68ZWkv9zsrsREFnilb6Oik0Q3bhz42xcFBXlOKTKKuPWO5dz7X-p3HxU9Q4PHuZaSTrTaAt6szt5KqpAnZD"
        "kFNl2Od_h3bY-vm0O60EK0ssEUThIkp8lFR6LMaxPq8O0istTmiDxfqztIVhybkRnOPqbkVbM2F5DOL_qW9WmG"
        "PRmqqCNA71QQH2xg0iyUDtN3YmXYX6FnOWk90TDfCnJYolNR9eGk06l8twfW0dO6LdpGU9nbFY36R5X_sXR5Xr"
        "ulnZjO2kPLmYOfb5B2Pccw3p6fF3yD4S_3P4DWqGIfY="
    ),
    "a log that does not have one of two tasks that follow a third": (
        "eNp9U0uPmzAQ_iuRjxW7yyNsGm6t1GN76qWNosiAEyyMB43tTdMo_70zhJJHsxUXM9-M-R7DUTgv0YtCpHH6-p"
        "QkT3HyPZ4XWVLky58iEr_BKkI_dQp1JV--qf3mB2BLiJeudaJYHYWVHfeUVKwQLB3pVKpGvmkIyD2rRfwcZx_T"
        "yGNQ1AUIwWu6eR2t0hHaSuMIcz6UJaBl6GaoR6iUc2K9jgQqj4dNrYw8iCIhLrpTI9MvAaFXL58VGm2JB9hN1U"
        "i7YwyVU55qnfy1kd6rrvfELiOysmphuxVF-hxHQm69QmqX4hRN6qr_qJvHMVNdZiNV36CS9SSO6qO4ScNZ2zTw"
        "rrZ5fiPuQQwV2CogKlsdBoW9kZWiek0MDFtcpCTJQNUSbMSNujXbrfpzimM9jVlMnmR8hapZOUrX8GAHwfpzB3"
        "kISHcn7NA4mS_ZvHEIA5s_bcZV2-KqyxnYz2rt2qvrFze910QMOD_7q4_XTxRTPPISz4fZ-PyT05DGInmQxh1y"
        "CXCM9gKRr9uHO6gtUcbQ-4GrLKWtgT3g-GjbRfGa328eTbl--BIJ2Wsa2POpg3qQNHhAXwwovQb7lXeV04lPVN"
        "TOoy4DA1c2WMBOGrJbuMGzIwVM02rHy7FXqjUHutFJw7_8gfvkG-ihsRldSqI0ytan0-kSSR6_F7Pz0M_us2Zz"
        "IOwaUZy320jk349fTn8AcblkXw=="
    ),
    "a death in a log that is held back by the retry delay of an edit": (
        "eNqNVE1z2jAQ_SuMjh2FyAaT4FvubaeHXtpMhlnL61iDLXkkOYRm-O9d2Q6YFKcAB2ZX-_V233tjzoP1LGWxiF"
        "c3Ykm_n9EyjUUqxG_G2R-jkbw_QKpCyduHRgFZPbitY-njG9NQB38wSms0_U34Ipl96b9kzbCEF2VaG94_LoUQ"
        "c7G4i3gBlUPOGmskOsee-GM87bobPN62Y8cTZxa93W9yrGDP0og6UzVe7tlig-Ax35TUDLkLZZ0PbRstW2tRy3"
        "0YpKrMjvV5TEvArBLOanjdgPdYN951VVxjEXKWvrGd0jkF0L_a5KFqhoWxSBny1oJXRn-jkLVIhDiQTTlvVdYG"
        "e4gZ0HNb3H2l3hg9cYhdYgdVWMtrsMGLUZ2xHHCMeMwXTwdyVUZu6VlFz47pstMy7vg9X1-xjR5YaSzNrAi9Ee"
        "bDNnKE4n-IP9RolYTb77jb_DJ2-xnq4GW5aRsyqeLGtvrmCJzSHq1tGx-AYJABIawnF3W-m6RrNK_CDHTEI3w4"
        "M3rzfuw5YE05DzSO89j0pwwF1aWFr-ZrMfqsQ8quFWnBlbMM_Q4xNAS1aTWli2JqI_SeLkVYw5Cou-cPwUrPYC"
        "ap91H4RHSynp9K01C-dKOg5ejpKpon0eL41nnT0MvhGORA19G5ydN9_HMScdj6ejFJz5NrdCwXroLAliXo51DP"
        "okN_9WLpYiqQyC7Q7rTalSBkXesa1JSrv94BDTr_w0VEo9E2KuP87L3OiDYfkLqaSR-1K7Bl9om2nTEtFtfJW6"
        "DrNKOuQ5c4lpGWXNK0czQ_kbgez3OFi-57tkyLHL42pBLaK6imdM7oah9sXble5PiSJ53QjdibGeM7WRy4kIhA"
        "ZAL0uXzvPkx3HNz38xEtNkdZD9IANpxnCDj8BdqNO9c="
    ),
    "a suspension whose end came sooner by the clock, which had been set back a little": (
        "eNqNU02Pm0AM_SvRHCuSDuSjWm69t1IPPXUVRWYwmxEwgzwzm6ZR_nttSFLararCBdnPz8_P5qJCBIqqVIUuds"
        "tcL4vN16IoN7rU628qUz-8Q85-AWMba95_HCxwNEJogyqfL8pBL3kJGvKOP7fZert4N70crfAIr9YnEvyzXun1"
        "hzyLlJALPPkULTfYZ_dMA13g1EDeYAiS2Gj9W1WN0Cwe-X2mCCOdDzV2cFaloCU0IESsD0duzJoaSyGymB6-Hy"
        "BG7IfIcvKRrO5EQVnoa_YYp_rPcf7UFmKqKk_uL7q2zAjRHA9pYFaHr0hMZ11EojSwVnGxAldzV7HGmUSEznCt"
        "jNOBwTcDrFkPmNY3Detf6fk4O7EhpDCgY-abuoE4r8qLOlnuc5Kv3tfj_po46qkTQbTefWZ2NkTVNkSyVZKYwG"
        "_-hBZPn9hgxZCAOHIykCMvoveE2HZnpgvQyW2d1fV63Ys9OExnM_Urd7vVk549TzLCaMVdeqag98kxyy6XBd0K"
        "82naCYpxYTpv2hl4uZ6B_9HFmnbBM85L-Sp6T-NF6DmJXv2qMwThOKspxqubynKZlA_75Xj3XZb2WKigxQk_HK"
        "LtkX8AdjpTHdALTgXXn_5pH1g="
    ),
    "a log that does not have the task after which another was due when the process died": (
        "eNqVkk2PmzAQhv8K8rEiiSGEJNy6q54q9bQ9tNEKDWYSrICN_LHb7Sr_vQMhJNkoKxU44JnX42fG7zuzDoxjGY"
        "t5nE54Qt9TlGQxzzj_zUL2Vyuk7M-nR1o4sHvLss07U9B0YaCgMFrRL58s1sGX40vRAit4kdqbTr_hUz5fRuEW"
        "aoshKxG2QWu0QGvZc7iJP0s_h8ygM295iTW8sYwThmxw4PpqJcy-63oPrmcBJ6rct5SR24nxalLgVhvsUloJbw"
        "wqQUWoZFuD6OIN_MnBOWxaR6jRIRybK87N3TSUcN5Br-LQGT8w96yXbA0aKWD2A1_zX9rsqYhWuahA7bBHsOhu"
        "wKCu9Ss71tGeLiZd3DCGDLYOzTB_qnm6wxKwId4DcViH7fGqBu1yuojmfHzmSQeNJe1S2lVS7ajU2Hg3hct9o1"
        "YYsNUd5WJ9JaX-fINnrfhEe0K4UKTpdLUenyRaXTMEUgUQCBoXnQCN9ooGkHzgjofdy2W0Oh-GpXSXLRx9zbL_"
        "vPjBrXeNGl2Z4Zs3usXZA5paqjtOkIrIjW9djwkFqFKrG4eQnwtZ3jh30ZuwpOpUMuX80iSHzhFG-13FsqNfrd"
        "NtPnpsTmp8QWJvpPIOT6oazG5YHP4B5QNNtA=="
    ),
}


@pytest.mark.parametrize("life", LIVES)
def test_an_honest_life_that_was_accused_is_not_accused_again(
    life: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again(LIVES[life]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("life", LIVES)
def test_nor_wherever_its_journal_begins_with_a_state(life: str) -> None:
    journal = recorded(plan_of(LIVES[life]), Random(0)).journal
    places = [place for place in range(len(journal)) if between_batches(journal, place)]
    for place in places[:: max(1, len(places) // 40)]:
        assert View(f"from {place}", begun_at(journal, place), True).broken() == []


@pytest.mark.parametrize("life", LIVES)
def test_nor_wherever_its_log_begins_with_a_process(life: str) -> None:
    log = recorded(plan_of(LIVES[life]), Random(0)).log
    places = [n for n, event in enumerate(log) if isinstance(event, e.InstanceStarted)]
    for place in places:
        assert View(f"from {place}", log[place:], False).broken() == []
