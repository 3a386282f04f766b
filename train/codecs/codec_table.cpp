// The class of each codec. A new one is a source of this folder and two words here.
#include "core/vocabulary/error.hpp"
#include "train/codecs/gradient_codec.hpp"

namespace dynamiccl {

CodecMaker make_float16, make_bfloat16, make_int8, make_onebit, make_ef_sign, make_signsgd,
    make_terngrad, make_qsgd, make_natural, make_topk, make_randomk, make_threshold, make_dgc,
    make_powersgd, make_stc, make_sbc, make_three_lc, make_adacomp, make_gtopk, make_diana,
    make_sketch, make_qsgd_adaptive, make_cocktail;

namespace {

struct CodecClass {
  Codec codec;
  CodecMaker* make;
};
constexpr CodecClass kClasses[] = {
    {Codec::fp16, make_float16},      {Codec::bf16, make_bfloat16},
    {Codec::int8, make_int8},         {Codec::onebit, make_onebit},
    {Codec::ef_sign, make_ef_sign},   {Codec::signsgd, make_signsgd},
    {Codec::terngrad, make_terngrad}, {Codec::qsgd, make_qsgd},
    {Codec::natural, make_natural},   {Codec::topk, make_topk},
    {Codec::randomk, make_randomk},   {Codec::threshold, make_threshold},
    {Codec::dgc, make_dgc},           {Codec::powersgd, make_powersgd},
    {Codec::stc, make_stc},           {Codec::sbc, make_sbc},
    {Codec::three_lc, make_three_lc}, {Codec::adacomp, make_adacomp},
    {Codec::gtopk, make_gtopk},       {Codec::diana, make_diana},
    {Codec::sketch, make_sketch},     {Codec::qsgd_adaptive, make_qsgd_adaptive},
    {Codec::cocktail, make_cocktail}};

}  // namespace

std::unique_ptr<GradientCodec> make_codec(const CodecSeat& seat) {
  for (const CodecClass& one : kClasses)
    if (one.codec == seat.plan.codec.codec) return one.make(seat);
  DYN_ASSERT(false, "every codec has a class");
}

}  // namespace dynamiccl
