"""Texts that editors correct, complete and reformat: quotes, dashes, lists, fractions, times, names, formulas, code.

Invariant: the lines are in the order in which an editor would be tempted by the line before.
"""

# For what is typed often: the lines that most editors correct.
SHORT = r"""
say "hello" to it's owner
a -- b and c - d --- e;
- first
1. third
(c) (tm) ... 1/2 of 3/4 !
http://example.com/a?b=c and www.example.com .
at 10:30 or 9:05pm
i am at THe end. teh adn
apple pie
app
if (x) { y = "z"; }
January
Ja
""".strip().split("\n")
CORPUS = [
    *SHORT,
    *r"""
* second
the 1st, 2nd and 3rd ;
*bold* _under_ /it/ -strike- .
+---+---+
---
    return [1, (2), 'three'
<b>"a" & 'b'</b>
:smile: -> <- => .
5 x 6 « q » : ; ! ?
cAPS lOCK wORD .
#1 @home $5 50% a^b ~x `q` a|b \n
""".strip().split("\n"),
]
ONE_LINE = (
    r"""say "it's" a -- b - (c) ... 1/2 1st 10:30pm i am teh http://a.b/c?d=e =SUM(A1) {x: [1]} <b> 'q' #1 ~$5 \n"""
)
