// Runs a tokenizer.json for tokenizer_judge.py, and a piece table for table_judge.py.
// usage: tokenize TOKENIZER [source|target] < TEXTS
// TEXTS: a JSON array of strings and arrays of ids. For each string, the output array has {"ids": …, "text": …}: its
// ids and the text of these; for each array, {"text": …}.
#include <boost/json.hpp>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <memory>

#include "data/piece_table.hpp"
#include "tokenizer/pipeline.hpp"

namespace {

std::string all_of(std::istream& stream) { return {std::istreambuf_iterator<char>(stream), {}}; }

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Ids = std::vector<std::int32_t>;

struct Functions {
  std::function<Ids(std::string_view)> encode;
  std::function<std::string(const Ids&)> decode;
};

Functions opened(const std::string& bytes, const char* path, std::string_view side) {
  if (argosy::data::is_packed(bytes)) {
    const auto table = std::make_shared<argosy::data::PieceTable>(argosy::data::unpack(bytes, path), path);
    const auto of = side == "source" ? argosy::data::Side::source : argosy::data::Side::target;
    return {[table, of](std::string_view text) { return table->encode(text, of); },
            [table](const Ids& ids) { return table->decode(ids); }};
  }
  const auto pipeline = std::make_shared<argosy::tokenizer::Pipeline>(argosy::tokenizer::Pipeline::load(bytes, path));
  return {[pipeline](std::string_view text) { return pipeline->encode(text); },
          [pipeline](const Ids& ids) { return pipeline->decode(ids); }};
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) throw std::invalid_argument("usage: tokenize TOKENIZER [source|target] < TEXTS");
  std::ifstream file(argv[1], std::ios::binary);
  const double begin_s = seconds_now();
  const Functions tokenizer = opened(all_of(file), argv[1], argc > 2 ? argv[2] : "target");
  const double load_s = seconds_now() - begin_s;
  double encode_s = 0, decode_s = 0;
  std::size_t tokens = 0;
  boost::json::array out;
  const boost::json::value texts = boost::json::parse(all_of(std::cin));
  for (const boost::json::value& each : texts.as_array()) {
    boost::json::object& answer = out.emplace_back(boost::json::object{}).as_object();
    Ids ids;
    if (each.is_string()) {
      const double from_s = seconds_now();
      ids = tokenizer.encode(each.get_string());
      encode_s += seconds_now() - from_s;
      answer["ids"] = boost::json::array(ids.begin(), ids.end());
      tokens += ids.size();
    } else {
      ids = boost::json::value_to<Ids>(each);
    }
    const double from_s = seconds_now();
    answer["text"] = tokenizer.decode(ids);
    decode_s += seconds_now() - from_s;
  }
  std::cout << out << '\n';
  std::cerr << boost::json::object{{"load_s", load_s},
                                   {"encode_s", encode_s},
                                   {"decode_s", decode_s},
                                   {"tokens", tokens}}
            << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
