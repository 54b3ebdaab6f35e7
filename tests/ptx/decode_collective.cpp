// The families by which lanes and warps meet, the tensor cores', and control.
#include "ptx/decoder.hpp"

namespace lockstep::ptx {

namespace {

void barrier(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    modifiers.take("cta");
    if (modifiers.take("warp")) {
        if (!modifiers.take("sync")) decoder.unknown("only bar.warp.sync is known");
        decoder.set(Group::collective, Op::warp_barrier, Type::none);
        made.a = decoder.slot(decoder.operand(0), 4);
        return;
    }
    if (!modifiers.take("sync")) decoder.unknown("only .sync is known");
    // Without .aligned, barrier.sync asks the same of warps here: that all lanes come.
    modifiers.take("aligned");
    decoder.set(Group::collective, Op::barrier, Type::none);
    made.a = decoder.slot(decoder.operand(0), 4);
    const Operand& number = decoder.operand(0);
    const bool only_zero = number.kind == Operand::Kind::integer && number.value == 0;
    if (decoder.operands() > 1) made.b = decoder.slot(decoder.operand(1), 4);
    if (!only_zero || decoder.operands() > 1) decoder.result().partial_barriers = true;
}

void shuffle(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    if (!modifiers.take("sync")) decoder.unknown("only .sync is known");
    Shuffle how = Shuffle::index;
    if (!modifiers.take_one_of<Shuffle>(
            {{"idx", Shuffle::index}, {"bfly", Shuffle::butterfly}, {"up", Shuffle::up}, {"down", Shuffle::down}},
            how) ||
        modifiers.type() != Type::b32)
        decoder.unknown("its mode or type is not known");
    decoder.set(Group::collective, Op::shuffle, Type::b32);
    made.mode = static_cast<std::uint8_t>(how);
    const Operand& to = decoder.operand(0);
    bool negated = false;
    if (to.kind == Operand::Kind::pair) {
        made.d = decoder.slot(to.parts[0], 4);
        made.second = decoder.predicate(to.parts[1], negated);
    } else {
        made.d = decoder.slot(to, 4);
    }
    made.b = decoder.slot(decoder.operand(1), 4);
    made.c = decoder.slot(decoder.operand(2), 4);
    made.fourth = decoder.slot(decoder.operand(3), 4);
    made.a = decoder.slot(decoder.operand(4), 4);  // the mask, where every collective has it
}

void vote(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    if (!modifiers.take("sync")) decoder.unknown("only .sync is known");
    Vote how = Vote::ballot;
    if (!modifiers.take_one_of<Vote>(
            {{"ballot", Vote::ballot}, {"all", Vote::all}, {"any", Vote::any}, {"uni", Vote::uniform}}, how))
        decoder.unknown("its mode is not known");
    const Type type = modifiers.type();
    if (type != (how == Vote::ballot ? Type::b32 : Type::pred)) decoder.unknown("not for this type");
    decoder.set(Group::collective, Op::vote, type);
    made.mode = static_cast<std::uint8_t>(how);
    bool negated = false;
    made.d = how == Vote::ballot ? decoder.slot(decoder.operand(0), 4) : decoder.predicate(decoder.operand(0), negated);
    made.b = decoder.predicate(decoder.operand(1), made.flag);
    made.a = decoder.slot(decoder.operand(2), 4);
}

void active_mask(Decoder& decoder) {
    if (decoder.modifiers().type() != Type::b32) decoder.unknown("not for this type");
    decoder.set(Group::collective, Op::active_mask, Type::b32);
    decoder.made().d = decoder.slot(decoder.operand(0), 4);
}

void need_all(Decoder& decoder, std::initializer_list<std::string_view> words) {
    for (const auto word : words)
        if (!decoder.modifiers().take(word)) decoder.unknown(std::string(".") + std::string(word) + " is missing");
}

void product(Decoder& decoder) {
    need_all(decoder, {"sync", "aligned", "m16n8k16", "row", "col"});
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    const Type d = modifiers.type(), a = modifiers.type(), b = modifiers.type(), c = modifiers.type();
    if (d != Type::f32 || c != Type::f32 || a != b || (a != Type::f16 && a != Type::bf16))
        decoder.unknown("not for these types");
    decoder.set(Group::tensor, Op::mma, a);
    constexpr std::size_t sizes[] = {4, 4, 2, 4};
    for (std::size_t i = 0; i < 4; ++i) {
        const auto begin = decoder.list(decoder.operand(i), 4, sizes[i]);
        if (i == 0) made.list = begin;
    }
}

void load_matrix(Decoder& decoder) {
    need_all(decoder, {"sync", "aligned", "m8n8"});
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    if (!modifiers.take_one_of<std::uint8_t>({{"x1", 1}, {"x2", 2}, {"x4", 4}}, made.count))
        decoder.unknown("one of .x1, .x2 and .x4 is missing");
    const bool transposed = modifiers.take("trans");
    if (!modifiers.take("shared") && !modifiers.take("shared::cta")) decoder.unknown(".shared is missing");
    if (modifiers.type() != Type::b16) decoder.unknown("not for this type");
    decoder.set(Group::tensor, Op::load_matrix, Type::b16);
    made.flag = transposed;
    made.space = Space::shared;
    made.list = decoder.list(decoder.operand(0), 4, made.count);
    decoder.address(decoder.operand(1));
}

void move_matrix(Decoder& decoder) {
    need_all(decoder, {"sync", "aligned", "m8n8", "trans"});
    if (decoder.modifiers().type() != Type::b16) decoder.unknown("not for this type");
    decoder.set(Group::tensor, Op::move_matrix, Type::b16);
    decoder.made().d = decoder.slot(decoder.operand(0), 4);
    decoder.made().a = decoder.slot(decoder.operand(1), 4);
}

void branch(Decoder& decoder) {
    decoder.made().flag = decoder.modifiers().take("uni");
    decoder.set(Group::control, Op::branch, Type::none);
    const Operand& to = decoder.operand(0);
    if (to.kind != Operand::Kind::symbol) decoder.unknown("its target is not a label");
    decoder.branch_to(to.name);
}

}  // namespace

void add_collective_families(Families& families) {
    families["bar"] = families["barrier"] = barrier;
    families["shfl"] = shuffle;
    families["vote"] = vote;
    families["activemask"] = active_mask;
    families["mma"] = product;
    families["ldmatrix"] = load_matrix;
    families["movmatrix"] = move_matrix;
    families["bra"] = branch;
    families["ret"] = [](Decoder& decoder) {
        decoder.modifiers().take("uni");
        decoder.leave();
    };
    families["exit"] = [](Decoder& decoder) { decoder.set(Group::control, Op::leave, Type::none); };
    families["call"] = [](Decoder& decoder) {
        decoder.modifiers().take("uni");
        decoder.call();
    };
}

}  // namespace lockstep::ptx
