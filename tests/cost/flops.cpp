#include <cstdint>
#include <initializer_list>

#include <doctest/doctest.h>

#include <dynapipe/cost/flops.hpp>

using namespace dynapipe;

namespace {

/// Samples of these lengths without padding, as the model pairs them.
varlen_shape packed(const model_spec& model, std::initializer_list<std::int64_t> lengths) {
  varlen_shape s;
  for (const std::int64_t length : lengths)
    s = with_sample(s, length, 0, model.window);
  return s;
}

}  // namespace

TEST_CASE("FLOPs of GPT 6.7B by hand") {
  const model_spec gpt = presets::gpt_6_7b();
  // 4 projections of 4,096^2 and 2 matrices of 4,096 x 16,384, 2 FLOPs an element and token; attention: 32 heads,
  // scores and values 2 x 128 each a pair, of which half are seen.
  constexpr std::int64_t per_token = 2 * (4 * 4'096 * 4'096 + 2 * 4'096 * 16'384);
  static_assert(per_token == 402'653'184);
  constexpr std::int64_t layer = per_token * 1'024 + 32LL * (2 * 128 + 2 * 128) * (1'024 * 1'024 / 2);
  static_assert(layer == 420'906'795'008);
  CHECK(forward_flops(gpt, layer_kind::decoder, {1, 1'024, 0}) == layer);
  CHECK(forward_flops(gpt, layer_kind::decoder, {5, 1'024, 0}) == 5 * layer);
  CHECK(forward_flops(gpt, layer_kind::encoder, {1, 1'024, 0}) == layer + 8'589'934'592);  // sees both halves
  constexpr std::int64_t head = std::int64_t{2} * 4'096 * 51'200 * 1'024;
  CHECK(forward_flops(gpt, layer_kind::head, {1, 1'024, 0}) == head);
  CHECK(forward_flops(gpt, layer_kind::embedding, {1, 1'024, 0}) == 0);
  CHECK(model_flops(gpt, {1, 1'024, 0}) == 3 * (32 * layer + head));
  static_assert(3 * (32 * layer + head) == 41'695'542'509'568);
}

TEST_CASE("FLOPs of Llama 3 8B by hand: grouped queries, gated") {
  const model_spec llama = presets::llama_3_8b();
  // Queries and output 4,096 x 4,096, keys and values 4,096 x 1,024, three matrices of 4,096 x 14,336.
  constexpr std::int64_t per_token = 2 * (2 * 4'096 * 4'096 + 2 * 4'096 * 1'024 + 3 * 4'096 * 14'336);
  static_assert(per_token == 436'207'616);
  // Documents of 1,000 and 3,000 tokens: 10^7 squares, 16,384 FLOPs a pair, half of them.
  CHECK(forward_flops(llama, layer_kind::decoder, packed(llama, {1'000, 3'000})) ==
        per_token * 4'000 + 10'000'000LL * (4 * 32 * 128 / 2));
  // In one document of 4,000 there are 1.6 x 10^7.
  CHECK(forward_flops(llama, layer_kind::decoder, packed(llama, {4'000})) ==
        per_token * 4'000 + 16'000'000LL * (4 * 32 * 128 / 2));
  CHECK(forward_flops(llama, layer_kind::head, packed(llama, {1'000, 3'000})) ==
        std::int64_t{2} * 4'096 * 128'256 * 4'000);
}

TEST_CASE("FLOPs of Qwen3 30B A3B by hand: mixture of experts") {
  const model_spec qwen = presets::qwen3_30b_a3b();
  // Queries and output 2,048 x 4,096, keys and values 2,048 x 512; router 2,048 x 128; 8 of 128 experts of three
  // matrices of 2,048 x 768.
  constexpr std::int64_t elements = 2 * 2'048 * 4'096 + 2 * 2'048 * 512 + 2'048 * 128 + 8 * 3 * 2'048 * 768;
  static_assert(elements == 56'885'248);
  CHECK(forward_flops(qwen, layer_kind::decoder, {2, 500, 0}) ==
        2 * elements * 1'000 + 2 * 500 * 500 * (4 * 32 * 128 / 2LL));
}

TEST_CASE("FLOPs of DeepSeek-V3 by hand: latent attention, a shared expert") {
  const model_spec deepseek = presets::deepseek_v3();
  // Queries down to 1,536 and up to 128 heads of 128 + 64; keys and values down to 512, and a positioned part of 64, up
  // to 128 heads of 128 + 128; output from 128 heads of 128.
  constexpr std::int64_t attention =
      7'168 * 1'536 + 1'536 * 128 * 192 + 7'168 * (512 + 64) + 512 * 128 * 256 + 128 * 128 * 7'168;
  static_assert(attention == 187'105'280);
  // The router of 256, 8 experts and the shared one.
  constexpr std::int64_t experts = 7'168 * 256 + 9 * 3 * 7'168 * 2'048;
  static_assert(experts == 398'196'736);
  // Scores 2 x 192 and values 2 x 128 a pair and head, half of the pairs.
  constexpr std::int64_t layer = 2 * (attention + experts) * 1'000 + 128LL * (2 * 192 + 2 * 128) * (1'000 * 1'000 / 2);
  CHECK(forward_flops(deepseek, layer_kind::decoder, {1, 1'000, 0}) == layer);

  model_spec direct = deepseek;
  direct.latent->q_rank = 0;  // 7,168 x 128 x 192 in place of the two
  CHECK(forward_flops(direct, layer_kind::decoder, {1, 1'000, 0}) ==
        layer + 2'000LL * (7'168 * 128 * 192 - 7'168 * 1'536 - 1'536 * 128 * 192));
}

TEST_CASE("FLOPs of Mistral 7B by hand: sliding window") {
  const model_spec mistral = presets::mistral_7b();
  constexpr std::int64_t per_token = 2 * (2 * 4'096 * 4'096 + 2 * 4'096 * 1'024 + 3 * 4'096 * 14'336);
  // 8,192 tokens that see 4,096: the square of 8,192 without that of the 4,096 hidden from the last; half of it.
  constexpr std::int64_t squares = 8'192LL * 8'192 - 4'096 * 4'096;
  static_assert(squares == 50'331'648);
  CHECK(forward_flops(mistral, layer_kind::decoder, {1, 8'192, 0}) == per_token * 8'192 + squares * 8'192);
  // No window is felt at 4,096.
  CHECK(forward_flops(mistral, layer_kind::decoder, {1, 4'096, 0}) == per_token * 4'096 + 4'096 * 4'096 * 8'192LL);
  CHECK(forward_flops(mistral, layer_kind::decoder, packed(mistral, {8'192, 4'096})) ==
        per_token * 12'288 + (squares + 4'096 * 4'096) * 8'192);
}

TEST_CASE("FLOPs of T5 11B by hand: two lengths") {
  const model_spec t5 = presets::t5_11b();
  // Inside 128 heads of 128. Encoder: 4 projections, 2 matrices, all pairs. Decoder: half the pairs of its own, and of
  // the cross-attention queries and output for its tokens, keys and values for the encoder's, all pairs.
  constexpr std::int64_t encoder = 300 * 2 * (4 * 1'024 * 16'384 + 2 * 1'024 * 65'536LL) + 300 * 300 * 4 * 16'384LL;
  constexpr std::int64_t decoder = 100 * 2 * (6 * 1'024 * 16'384LL + 2 * 1'024 * 65'536LL) +
                                   300 * 2 * (2 * 1'024 * 16'384LL) + 100 * 100 * 2 * 16'384 + 100 * 300 * 4 * 16'384LL;
  CHECK(forward_flops(t5, layer_kind::encoder, {1, 300, 100}) == encoder);
  CHECK(forward_flops(t5, layer_kind::cross_decoder, {1, 300, 100}) == decoder);
  constexpr std::int64_t head = 2LL * 1'024 * 32'128 * 100;
  CHECK(model_flops(t5, {1, 300, 100}) == 3 * (24 * encoder + 24 * decoder + head));
  CHECK(model_flops(t5, with_sample({}, 300, 100)) == model_flops(t5, {1, 300, 100}));
}

TEST_CASE("lengths at which attention costs what the matrices do") {
  const auto crossover = [](const model_spec& model) {
    const auto matrices = forward_flops(model, layer_kind::decoder, varlen_shape{.tokens = 1});
    const auto pair = forward_flops(model, layer_kind::decoder, varlen_shape{.squares = 1});
    return matrices / pair;
  };
  CHECK(crossover(presets::llama_2_7b()) == 49'408);
  CHECK(crossover(presets::llama_3_8b()) == 53'248);
  CHECK(crossover(presets::qwen3_30b_a3b()) == 13'888);
  CHECK(crossover(presets::deepseek_v3()) == 28'579);
}

TEST_CASE("executed FLOPs: recomputation, and what an unfused kernel does not skip") {
  model_spec model = presets::mistral_7b();
  const shape s{3, 8'192, 0};
  const std::int64_t forward = forward_flops(model, layer_kind::decoder, s);
  const std::int64_t attention = 3 * (8'192 * 8'192 - 4'096 * 4'096) * 8'192LL;
  CHECK(executed_flops(model, layer_kind::decoder, s, recompute_mode::none) == 3 * forward);
  CHECK(executed_flops(model, layer_kind::decoder, s, recompute_mode::selective) == 3 * forward + attention);
  CHECK(executed_flops(model, layer_kind::decoder, s, recompute_mode::full) == 4 * forward);
  CHECK(executed_flops(model, layer_kind::head, s, recompute_mode::full) ==
        3 * forward_flops(model, layer_kind::head, s));

  model.kernel = attention_kernel::unfused;
  CHECK(forward_flops(model, layer_kind::decoder, s) == forward);
  CHECK(executed_flops(model, layer_kind::decoder, s, recompute_mode::none) ==
        3 * (forward - attention + 3 * 8'192 * 8'192 * 2 * 8'192LL));

  // Padding is executed, and no model FLOP: rows of 100 and 60 tokens, padded to 100.
  const model_spec llama = presets::llama_2_7b();
  CHECK(executed_flops(llama, layer_kind::decoder, {2, 100, 0}, recompute_mode::none) -
            3 * forward_flops(llama, layer_kind::decoder, packed(llama, {100, 60})) ==
        3 * (40 * 2 * (4 * 4'096 * 4'096 + 3 * 4'096 * 11'008LL) + (100 * 100 - 60 * 60) * 8'192));
}

TEST_CASE("FLOPs beyond measure are held at the largest value") {
  const model_spec model = presets::llama_3_70b();
  constexpr std::int64_t length = std::int64_t{1} << 32;
  CHECK(forward_flops(model, layer_kind::decoder, {1, length, 0}) == int64_limit);
  CHECK(model_flops(model, {1 << 20, 1 << 20, 0}) == int64_limit);
}
